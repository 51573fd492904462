//! A machine as its controller's registers show it: a cycle with a press stroke, a temperature that follows the load, now and then a fault. Pure and deterministic: the
//! same seed and the same steps give the same values.

use std::f64::consts::{PI, TAU};
use std::time::Duration;

use sparkplug::{DataType, Value};

/// One value that a machine publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    /// What stands behind it.
    pub signal: Signal,
    /// Type of the metric.
    pub datatype: DataType,
}

/// What a machine can measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `idle`, `running`, `blocked` or `fault`.
    State,
    Temperature,
    Force,
    Power,
    CycleCount,
    /// Seconds that the last cycle took.
    CycleTime,
    /// Whether there is a fault.
    Fault,
    /// A slow wave with noise, for values without a meaning here; the number distinguishes two of them.
    Wave(u16),
}

impl Signal {
    /// The signal that a tag's name suggests.
    fn of_name(name: &str, number: usize) -> Self {
        let last = name.rsplit('/').next().unwrap_or(name).to_lowercase();
        let has = |part: &str| last.contains(part);
        if has("state") || has("status") {
            Self::State
        } else if has("temp") {
            Self::Temperature
        } else if has("force") || has("pressure") || has("torque") {
            Self::Force
        } else if has("power") || has("current") {
            Self::Power
        } else if has("count") || has("cycles") {
            Self::CycleCount
        } else if has("cycle") {
            Self::CycleTime
        } else if has("fault") || has("alarm") || has("error") {
            Self::Fault
        } else {
            Self::Wave(u16::try_from(number).unwrap_or(u16::MAX))
        }
    }
}

impl Tag {
    /// A tag whose meaning is guessed from its name; `number` is its place in the list.
    pub fn named(name: &str, datatype: DataType, number: usize) -> Self {
        Self { name: name.to_string(), signal: Signal::of_name(name, number), datatype }
    }

    /// What a machine publishes when its configuration lists no tags.
    pub fn defaults() -> Vec<Self> {
        let tag = |name: &str, signal, datatype| Self { name: name.to_string(), signal, datatype };
        vec![
            tag("State", Signal::State, DataType::String),
            tag("Process/Temperature", Signal::Temperature, DataType::Float),
            tag("Process/Force", Signal::Force, DataType::Float),
            tag("Process/Power", Signal::Power, DataType::Float),
            tag("Cycle/Count", Signal::CycleCount, DataType::UInt64),
            tag("Cycle/Time", Signal::CycleTime, DataType::Float),
            tag("Fault", Signal::Fault, DataType::Boolean),
        ]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Idle,
    Running,
    Blocked,
    Fault,
}

#[derive(Debug, Clone)]
pub struct Machine {
    random: u64,
    condition: Condition,
    /// Seconds spent in the condition, and how long it lasts.
    spent: f64,
    lasts: f64,
    clock: f64,
    cycles: u64,
    cycle_time: f64,
    temperature: f64,
    nominal_cycle: f64,
    nominal_force: f64,
}

/// Temperature of the hall.
const AMBIENT: f64 = 21.0;

impl Machine {
    /// A machine that has just been switched on.
    pub fn new(seed: u64) -> Self {
        let mut machine = Self {
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            condition: Condition::Idle,
            spent: 0.0,
            lasts: 0.0,
            clock: 0.0,
            cycles: 0,
            cycle_time: 0.0,
            temperature: AMBIENT,
            nominal_cycle: 0.0,
            nominal_force: 0.0,
        };
        machine.nominal_cycle = 4.0 + 6.0 * machine.chance();
        machine.nominal_force = 40.0 + 160.0 * machine.chance();
        machine.lasts = 1.0 + 2.0 * machine.chance();
        machine
    }

    /// A number from 0 to 1 (splitmix64).
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // 53 bits fit a double exactly.
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn step(&mut self, elapsed: Duration) {
        let mut left = elapsed.as_secs_f64().min(60.0);
        self.clock += left;
        let load = if self.condition == Condition::Running { 1.0 } else { 0.0 };
        let aim = AMBIENT + 35.0 * load;
        self.temperature += (aim - self.temperature) * (1.0 - (-left / 90.0).exp()) + 0.2 * (self.chance() - 0.5);
        while self.spent + left >= self.lasts {
            left -= self.lasts - self.spent;
            self.change();
        }
        self.spent += left;
    }

    fn change(&mut self) {
        let next = match self.condition {
            Condition::Running => {
                self.cycles += 1;
                self.cycle_time = self.lasts;
                match self.chance() {
                    dice if dice < 0.01 => Condition::Fault,
                    dice if dice < 0.06 => Condition::Blocked,
                    dice if dice < 0.16 => Condition::Idle,
                    _ => Condition::Running,
                }
            }
            Condition::Idle | Condition::Blocked | Condition::Fault => Condition::Running,
        };
        self.condition = next;
        self.spent = 0.0;
        self.lasts = match next {
            Condition::Running => self.nominal_cycle * (0.9 + 0.2 * self.chance()),
            Condition::Idle => 1.0 + 4.0 * self.chance(),
            Condition::Blocked => 3.0 + 10.0 * self.chance(),
            Condition::Fault => 10.0 + 20.0 * self.chance(),
        };
    }

    /// The stroke takes the second third of a cycle.
    fn force(&self) -> f64 {
        let part = self.spent / self.lasts;
        if self.condition == Condition::Running && (1.0 / 3.0..2.0 / 3.0).contains(&part) {
            self.nominal_force * ((part * 3.0 - 1.0) * PI).sin()
        } else {
            0.0
        }
    }

    /// What a tag shows at the moment. Numbers are rounded, so that a value that hardly changes is not sent again.
    pub fn read(&self, tag: &Tag) -> Value {
        let number = match tag.signal {
            Signal::State => return text_or(tag.datatype, self.state(), f64::from(self.condition as u8)),
            Signal::Temperature => self.temperature,
            Signal::Force => self.force(),
            Signal::Power => 1.5 + self.force() * 0.12,
            Signal::CycleCount => self.cycles as f64,
            Signal::CycleTime => self.cycle_time,
            Signal::Fault => f64::from(u8::from(self.condition == Condition::Fault)),
            Signal::Wave(number) => {
                50.0 + 40.0 * (self.clock / (20.0 + f64::from(number)) * TAU + f64::from(number)).sin()
            }
        };
        let number = (number * 10.0).round() / 10.0;
        match tag.datatype {
            DataType::String | DataType::Text => text_or(tag.datatype, &number.to_string(), number),
            datatype => numeric(datatype, number),
        }
    }

    /// How long it has been in its condition.
    pub fn spent(&self) -> Duration {
        Duration::from_secs_f64(self.spent)
    }

    /// `idle`, `running`, `blocked` or `fault`.
    pub fn state(&self) -> &'static str {
        match self.condition {
            Condition::Idle => "idle",
            Condition::Running => "running",
            Condition::Blocked => "blocked",
            Condition::Fault => "fault",
        }
    }
}

fn text_or(datatype: DataType, text: &str, number: f64) -> Value {
    match datatype {
        DataType::String => Value::String(text.into()),
        DataType::Text => Value::Text(text.into()),
        other => numeric(other, number),
    }
}

/// Casts saturate, which is what a register of that width would show.
fn numeric(datatype: DataType, number: f64) -> Value {
    match datatype {
        DataType::Int8 => Value::Int8(number as i8),
        DataType::Int16 => Value::Int16(number as i16),
        DataType::Int32 => Value::Int32(number as i32),
        DataType::Int64 => Value::Int64(number as i64),
        DataType::UInt8 => Value::UInt8(number as u8),
        DataType::UInt16 => Value::UInt16(number as u16),
        DataType::UInt32 => Value::UInt32(number as u32),
        DataType::UInt64 => Value::UInt64(number as u64),
        DataType::Float => Value::Float(number as f32),
        DataType::Boolean => Value::Boolean(number >= 0.5),
        _ => Value::Double(number),
    }
}

/// Whether a machine can show values of this type.
pub(crate) fn is_supported(datatype: DataType) -> bool {
    use DataType as T;
    matches!(
        datatype,
        T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::UInt8
            | T::UInt16
            | T::UInt32
            | T::UInt64
            | T::Float
            | T::Double
            | T::Boolean
            | T::String
            | T::Text
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, steps: usize) -> Vec<Vec<Value>> {
        let mut machine = Machine::new(seed);
        let tags = Tag::defaults();
        (0..steps)
            .map(|_| {
                machine.step(Duration::from_millis(500));
                tags.iter().map(|tag| machine.read(tag)).collect()
            })
            .collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_values_and_another_does_not() {
        assert_eq!(run(7, 200), run(7, 200));
        assert_ne!(run(7, 200), run(8, 200));
    }

    #[test]
    fn a_machine_works_warms_up_and_never_uncounts_a_cycle() {
        let story = run(3, 2000);
        let counts: Vec<u64> = story.iter().map(|values| values[4].as_u64().unwrap()).collect();
        assert!(counts.is_sorted());
        assert!(*counts.last().unwrap() > 50, "{counts:?}");
        let temperature = |values: &Vec<Value>| match values[1] {
            Value::Float(number) => number,
            ref other => panic!("{other:?}"),
        };
        assert!(temperature(&story[0]) < 23.0 && temperature(&story[1999]) > 30.0);
        assert!(story.iter().any(|values| values[0] == Value::String("running".into())));
        assert!(story.iter().any(|values| values[0] == Value::String("blocked".into())));
    }

    #[test]
    fn every_supported_type_is_read_as_itself() {
        use DataType as T;
        let mut machine = Machine::new(1);
        machine.step(Duration::from_secs(30));
        for datatype in (1..=34).filter_map(T::from_wire).filter(|t| is_supported(*t)) {
            for (number, name) in
                ["State", "Oil/Temperature", "Force", "Power", "Good_Count", "Cycle", "Alarm", "Other"]
                    .iter()
                    .enumerate()
            {
                let tag = Tag::named(name, datatype, number);
                assert_eq!(machine.read(&tag).datatype(), datatype, "{tag:?}");
            }
        }
    }

    #[test]
    fn a_long_pause_ends() {
        let mut machine = Machine::new(1);
        machine.step(Duration::from_secs(1_000_000));
        assert!(machine.cycles > 0 && machine.clock <= 60.0);
    }
}
