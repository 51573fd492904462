//! Keytabs: the file format of MIT Kerberos (version 0x0502), read and put together again. Keys are carried, never looked at.
//!
//! Source: <https://web.mit.edu/kerberos/krb5-latest/doc/formats/keytab_file_format.html>

use std::collections::{BTreeMap, BTreeSet};

use zeroize::Zeroizing;

const MAGIC: [u8; 2] = [5, 2];
/// Entries of one keytab; a bound for what a Secret can make us hold.
const ENTRIES_MAX: usize = 4096;

/// One entry, without what is secret in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyEntry {
    pub principal: String,
    /// Version of the key.
    pub version: u32,
    /// When it was put in, seconds since 1970.
    pub at_s: u32,
}

/// A key that another one of the same principal has followed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OldKey {
    pub principal: String,
    /// Version of the key.
    pub version: u32,
    /// When its successor was put in, seconds since 1970.
    pub followed_s: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a keytab: {0}")]
pub struct KeytabError(&'static str);

#[derive(Clone, Default)]
pub struct Keytab(Vec<(KeyEntry, Zeroizing<Vec<u8>>)>);

impl std::fmt::Debug for Keytab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Keytab {
    /// Reads a file.
    ///
    /// # Errors
    /// [`KeytabError`]
    pub fn parse(file: &[u8]) -> Result<Self, KeytabError> {
        let mut rest = file.strip_prefix(&MAGIC).ok_or(KeytabError("it does not begin with 05 02"))?;
        let mut records = Vec::new();
        while !rest.is_empty() {
            let length = i32::from_be_bytes(take(&mut rest)?);
            let size = usize::try_from(length.unsigned_abs()).map_err(|_| KeytabError("an entry is too long"))?;
            if size > rest.len() {
                return Err(KeytabError("an entry is longer than the file"));
            }
            let (record, after) = rest.split_at(size);
            rest = after;
            // A negative length is a hole that a deleted entry left.
            if length > 0 {
                records.push((entry(record)?, Zeroizing::new(record.to_vec())));
            }
            if records.len() > ENTRIES_MAX {
                return Err(KeytabError("it has more than 4096 entries"));
            }
        }
        Ok(Self(records))
    }

    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let size = self.0.iter().map(|(_, record)| record.len() + 4).sum::<usize>() + MAGIC.len();
        let mut file = Zeroizing::new(Vec::with_capacity(size));
        file.extend_from_slice(&MAGIC);
        for (_, record) in &self.0 {
            // A record was read with a length of 31 bits.
            file.extend_from_slice(&u32::try_from(record.len()).unwrap_or(0).to_be_bytes());
            file.extend_from_slice(record);
        }
        file
    }

    /// What is in it, in order.
    pub fn entries(&self) -> impl Iterator<Item = &KeyEntry> {
        self.0.iter().map(|(entry, _)| entry)
    }

    /// This one's entries of `principals`, then those of `newer`, each principal and version once.
    #[must_use]
    pub fn followed_by(mut self, newer: Self, principals: &BTreeSet<&str>) -> Self {
        let of = |entry: &KeyEntry| (entry.principal.clone(), entry.version);
        let replaced: BTreeSet<_> = newer.entries().map(of).collect();
        self.0.retain(|(entry, _)| principals.contains(entry.principal.as_str()) && !replaced.contains(&of(entry)));
        self.0.extend(newer.0);
        self
    }

    #[must_use]
    pub(crate) fn without(mut self, keys: &[OldKey]) -> Self {
        let is_named =
            |entry: &KeyEntry| keys.iter().any(|old| old.principal == entry.principal && old.version == entry.version);
        self.0.retain(|(entry, _)| !is_named(entry));
        self
    }
}

/// The keys in `entries` that others have followed.
#[must_use]
pub(crate) fn old_keys(entries: &[KeyEntry]) -> Vec<OldKey> {
    let mut versions: BTreeMap<&str, BTreeMap<u32, u32>> = BTreeMap::new();
    for entry in entries {
        let at = versions.entry(&entry.principal).or_default().entry(entry.version).or_insert(entry.at_s);
        *at = entry.at_s.min(*at);
    }
    let mut old = Vec::new();
    for (principal, versions) in versions {
        let followers = versions.values().skip(1);
        old.extend(versions.keys().zip(followers).map(|(version, followed)| OldKey {
            principal: principal.to_owned(),
            version: *version,
            followed_s: *followed,
        }));
    }
    old
}

fn entry(mut record: &[u8]) -> Result<KeyEntry, KeytabError> {
    let components = u16::from_be_bytes(take(&mut record)?);
    let realm = text(&mut record)?;
    let path = (0..components).map(|_| text(&mut record)).collect::<Result<Vec<_>, _>>()?.join("/");
    let _name_type: [u8; 4] = take(&mut record)?;
    let at_s = u32::from_be_bytes(take(&mut record)?);
    let [short] = take(&mut record)?;
    let _encryption: [u8; 2] = take(&mut record)?;
    let key_length = usize::from(u16::from_be_bytes(take(&mut record)?));
    let mut after = record.get(key_length..).ok_or(KeytabError("a key is longer than its entry"))?;
    // The version in 32 bits, if there is one; 0 is none.
    let version = take(&mut after).map(u32::from_be_bytes).ok().filter(|version| *version != 0);
    Ok(KeyEntry { principal: format!("{path}@{realm}"), version: version.unwrap_or(u32::from(short)), at_s })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], KeytabError> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or(KeytabError("it ends within an entry"))?;
    *rest = after;
    Ok(*bytes)
}

fn text(rest: &mut &[u8]) -> Result<String, KeytabError> {
    let length = usize::from(u16::from_be_bytes(take(rest)?));
    let (bytes, after) = rest.split_at_checked(length).ok_or(KeytabError("it ends within a name"))?;
    *rest = after;
    String::from_utf8(bytes.to_vec()).map_err(|_| KeytabError("a name is not text"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A keytab with such entries.
    pub(crate) fn keytab(entries: &[(&str, u32, u32)]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        for (principal, version, at_s) in entries {
            let (path, realm) = principal.split_once('@').unwrap();
            let mut record = Vec::new();
            record.extend(u16::try_from(path.split('/').count()).unwrap().to_be_bytes());
            for part in [realm].into_iter().chain(path.split('/')) {
                record.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
                record.extend(part.as_bytes());
            }
            record.extend(1u32.to_be_bytes());
            record.extend(at_s.to_be_bytes());
            record.push(version.to_be_bytes()[3]);
            record.extend(18u16.to_be_bytes());
            record.extend(4u16.to_be_bytes());
            record.extend([0xAB; 4]);
            record.extend(version.to_be_bytes());
            file.extend(u32::try_from(record.len()).unwrap().to_be_bytes());
            file.extend(record);
        }
        file
    }

    #[test]
    fn a_keytab_is_read_and_written_as_it_was() {
        let file = keytab(&[("nd1/Paint/Robot@A", 2, 100), ("nd1/Paint/Robot@A", 300, 200)]);
        let read = Keytab::parse(&file).unwrap();
        let versions: Vec<_> = read.entries().map(|entry| (entry.principal.as_str(), entry.version)).collect();
        assert_eq!(versions, [("nd1/Paint/Robot@A", 2), ("nd1/Paint/Robot@A", 300)]);
        assert_eq!(*read.to_bytes(), file);
        assert!(!format!("{read:?}").contains("171"), "a key byte in {read:?}");
    }

    #[test]
    fn a_hole_is_left_out() {
        let mut file = keytab(&[("a@A", 1, 1)]);
        file.extend((-3i32).to_be_bytes());
        file.extend([0; 3]);
        assert_eq!(Keytab::parse(&file).unwrap().entries().count(), 1);
    }

    #[test]
    fn newer_keys_follow_those_of_the_wanted_principals() {
        let old = Keytab::parse(&keytab(&[("a@A", 1, 1), ("gone@A", 1, 1)])).unwrap();
        let new = Keytab::parse(&keytab(&[("a@A", 2, 2)])).unwrap();
        let both = old.followed_by(new, &BTreeSet::from(["a@A"]));
        let entries: Vec<KeyEntry> = both.entries().cloned().collect();
        let old = old_keys(&entries);
        assert_eq!(old, [OldKey { principal: "a@A".to_owned(), version: 1, followed_s: 2 }]);
        assert_eq!(both.without(&old).entries().map(|entry| entry.version).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn each_version_is_followed_by_the_next_one() {
        let entry = |version, at_s| KeyEntry { principal: "a@A".to_owned(), version, at_s };
        let entries = [entry(3, 30), entry(5, 50), entry(3, 31), entry(4, 40)];
        let old: Vec<_> = old_keys(&entries).into_iter().map(|old| (old.version, old.followed_s)).collect();
        assert_eq!(old, [(3, 40), (4, 50)]);
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let file = [MAGIC.as_slice(), &bytes].concat();
            if let Ok(read) = Keytab::parse(&file) {
                let entries: Vec<KeyEntry> = read.entries().cloned().collect();
                let again = Keytab::parse(&read.to_bytes()).unwrap();
                prop_assert_eq!(again.entries().cloned().collect::<Vec<_>>(), entries);
            }
        }

        #[test]
        fn the_newest_key_of_a_principal_is_never_old(versions in proptest::collection::vec((0u32..9, 0u32..99), 1..20)) {
            let entries: Vec<_> =
                versions.iter().map(|(version, at_s)| KeyEntry { principal: "a@A".to_owned(), version: *version, at_s: *at_s }).collect();
            let newest = versions.iter().map(|(version, _)| *version).max().unwrap();
            prop_assert!(old_keys(&entries).iter().all(|old| old.version < newest));
        }
    }
}
