//! Names of metrics and properties.

/// Node, UUID: identity of the store. Another value means that everything is replaced.
pub const CONFIG_STORE: &str = "Config/Store";
/// Node, UInt64: revision of the last committed transaction. Follows the data of its transactions.
pub const CONFIG_REVISION: &str = "Config/Revision";
/// Node, UInt64: the highest epoch that an operator has raised for a cluster in this store, 0 before the first.
pub const CONFIG_EPOCH: &str = "Config/Epoch";
/// Node, String: the timelines of the store ([`sparkplug::replication::Timelines`]): which session of the process wrote which revisions. Precedes the data of the first transaction of a session.
pub const CONFIG_TIMELINES: &str = "Config/Timelines";
/// Node, UInt64: number of objects that are born.
pub const CONFIG_OBJECTS: &str = "Config/Objects";
/// Node, String ([`crate::node::Applications`]): the applications that objects can have entries under.
pub const CONFIG_APPLICATIONS: &str = "Config/Applications";
/// Node, UInt64: no message of the node is larger.
pub const CONFIG_MESSAGE_BYTES_MAX: &str = "Config/Max_Message_Bytes";
/// Node, String: what an operator has to do something about, such as a disk without room; null: nothing.
pub const CONFIG_ALERT: &str = "Config/Alert";
/// Node, String JSON ([`crate::RequestResult`]): the answer to the last request.
pub const REQUEST_RESULT: &str = "Request/Result";

/// Node, String: `configdb`.
pub const PROPERTIES_SERVICE: &str = "Properties/Service";
/// Node, String: version of the program.
pub const PROPERTIES_VERSION: &str = "Properties/Version";
/// Node, Boolean: whether it only simulates.
pub const PROPERTIES_SIMULATED: &str = "Properties/Simulated";
/// Value of [`PROPERTIES_SERVICE`].
pub const SERVICE: &str = "configdb";

/// Command, String: identity of the request, made by the caller; a repeated one is answered with the recorded result.
pub const REQUEST_ID: &str = "Request/Id";
/// Command, String: who writes; recorded in the history.
pub const REQUEST_WRITER: &str = "Request/Writer";
/// Command, String UUID: the object that the request is about, in a command to the Device that is called as a user of the MQTT server ([`crate::command::Sender`]).
pub const REQUEST_OBJECT: &str = "Request/Object";
/// Command, Boolean: with a replay, publish all values of the object, too.
pub const REQUEST_VALUES: &str = "Request/Values";
/// Command, String UUID: the store that the request is for ([`CONFIG_STORE`]). A ConfigDB with another store refuses it. Absent: whichever answers.
pub const REQUEST_STORE: &str = "Request/Store";
/// Command, String JSON `{slug: etag | null}`: write only if the entries are as named; null: must not exist.
pub const REQUEST_IF_MATCH: &str = "Request/If_Match";
/// Command, String `TIMELINE/REVISION`, the timeline as 16 hex digits: a state that the store must contain, because the request was decided on what it held then. A store that was
/// restored to an older state since refuses it.
pub const REQUEST_IF_CONTAINS: &str = "Request/If_Contains";
/// Command, String: `put` or `patch`.
pub const REQUEST_MODE: &str = "Request/Mode";
/// Command, String: the transaction that the write is a part of, or that is to be committed.
pub const TRANSACTION_ID: &str = "Transaction/Id";
/// Command, UInt64: place of the part in its transaction, from 0.
pub const TRANSACTION_POSITION: &str = "Transaction/Position";
/// Command, UInt64: commit the transaction, which has so many parts.
pub const TRANSACTION_COMMIT: &str = "Transaction/Commit";
/// Command, UInt64: replay the changes of the object from this revision on.
pub const HISTORY_REPLAY: &str = "History/Replay";
/// Command, String: only changes of this slug.
pub const HISTORY_APPLICATION: &str = "History/Application";
/// Command, UInt64: at most so many changes, the oldest first.
pub const HISTORY_LIMIT: &str = "History/Limit";

/// Object, String: its name, from its entry `Info`.
pub const OBJECT_NAME: &str = "Object/Name";
/// Object, UUID: its primary class.
pub const OBJECT_CLASS: &str = "Object/Class";

/// Property of an entry, String UUID: its application.
pub const APPLICATION: &str = "Application";
/// Property of an entry, String UUID: differs after every change.
pub const ETAG: &str = "ETag";
/// Property of an entry, UInt64: revision of the transaction that wrote it.
pub const REVISION: &str = "Revision";
/// Property of a historical value, String: who wrote it.
pub const WRITER: &str = "Writer";
/// Property of a historical value, String: the request that wrote it.
pub const REQUEST: &str = "Request";

/// What the name of a writer begins with for which the MQTT server vouches; the name of its user follows.
pub const WRITER_USER: &str = "user:";
/// What the name of a writer begins with that would look like another kind of writer's.
pub const WRITER_CLAIMED: &str = "claimed:";

/// Longest request id, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Longest name of a writer, in bytes.
pub const WRITER_BYTES_MAX: usize = 256;
/// Changes that one replay brings if the request does not say.
pub const HISTORY_LIMIT_DEFAULT: u64 = 100;
/// Changes that one replay brings at most.
pub const HISTORY_LIMIT_MAX: u64 = 1_000;
