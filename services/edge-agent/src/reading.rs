//! What a host says of itself in `/proc` and `/sys`, and its disk -> metrics. Pure.

use std::io;

use service_runtime::disk::Room;
use sparkplug::{Metric, Properties, Value};

/// One reading of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostReading {
    /// Processes that ran or wanted to, averaged over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Memory of the host, bytes.
    pub memory_total: u64,
    /// Memory that programs could have, bytes.
    pub memory_available: u64,
    /// Since the host has started, seconds.
    pub uptime: u64,
    /// The file system that the agent keeps its state on: in a pod, the disk of the host's kubelet. None: the system does not say.
    pub disk: Option<Room>,
    /// The hottest of its sensors, degrees Celsius. None: it has none, as virtual machines.
    pub temperature: Option<f64>,
}

/// A host cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("{file} cannot be read: {source}")]
    File {
        file: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It is not as Linux writes it.
    #[error("{file} has no {what}")]
    Content { file: &'static str, what: &'static str },
}

impl HostReading {
    /// Reads the texts of `/proc/loadavg`, `/proc/meminfo` and `/proc/uptime`; of disk and temperature nothing is known.
    ///
    /// # Errors
    /// What is missing in which.
    pub(crate) fn of(loadavg: &str, meminfo: &str, uptime: &str) -> Result<Self, ReadError> {
        let mut words = loadavg.split_whitespace().map(|word| word.parse().ok());
        let mut load = [0.0; 3];
        for average in &mut load {
            *average = words.next().flatten().ok_or(ReadError::Content { file: "loadavg", what: "three averages" })?;
        }
        let memory = |what: &'static str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
            let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            kilobytes
                .and_then(|kilobytes| kilobytes.checked_mul(1024))
                .ok_or(ReadError::Content { file: "meminfo", what })
        };
        let seconds = uptime.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok());
        Ok(Self {
            load,
            memory_total: memory("MemTotal")?,
            memory_available: memory("MemAvailable")?,
            uptime: seconds.ok_or(ReadError::Content { file: "uptime", what: "seconds" })?,
            disk: None,
            temperature: None,
        })
    }

    /// The hottest of the texts of `/sys/class/thermal/thermal_zone*/temp` (thousandths of a degree Celsius); those that are not numbers are left out, because a sensor may fail alone.
    #[must_use]
    pub(crate) fn hottest<'a>(zones: impl IntoIterator<Item = &'a str>) -> Option<f64> {
        let read = zones.into_iter().filter_map(|text| text.trim().parse::<i32>().ok());
        read.max().map(|thousandths| f64::from(thousandths) / 1000.0)
    }

    /// The metrics of the Device, with their units.
    #[must_use]
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let [one, five, fifteen] = self.load;
        let mut metrics = vec![
            described("Load/1_min", one, "Processes that ran or waited, on average over 1 minute."),
            described("Load/5_min", five, "The same over 5 minutes."),
            described("Load/15_min", fifteen, "The same over 15 minutes."),
            with_unit("Memory/Total", self.memory_total, "B", "Memory of the host."),
            with_unit("Memory/Available", self.memory_available, "B", "Memory that programs can still get."),
            with_unit("Host/Uptime", self.uptime, "s", "Time since the host started."),
        ];
        if let Some(Room { total, available }) = self.disk {
            metrics.extend([
                with_unit("Disk/Total", total, "B", "Size of the disk that has the state directory."),
                with_unit("Disk/Available", available, "B", "Room that is left on it."),
            ]);
        }
        metrics.extend(
            self.temperature.map(|degrees| with_unit("Host/Temperature", degrees, "°C", "Hottest sensor of the host.")),
        );
        metrics
    }
}

/// A metric that says what it means.
pub(crate) fn described(name: &'static str, value: impl Into<Value>, what: &str) -> Metric {
    Metric::new(name, value).with_properties(Properties::described(&[what], true))
}

fn with_unit(name: &'static str, value: impl Into<Value>, unit: &'static str, what: &str) -> Metric {
    let properties = Properties::described(&[what], true).with("engUnit", unit);
    Metric::new(name, value).with_properties(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16303428 kB\nMemFree:         1000 kB\nMemAvailable:   8151714 kB\n";

    #[test]
    fn a_host_is_read_as_linux_writes_it() {
        let reading = HostReading::of("0.52 1.00 12.5 2/345 678\n", MEMINFO, "12345.67 99.9\n").unwrap();
        let memory = (reading.memory_total, reading.memory_available);
        assert_eq!((reading.load, memory), ([0.52, 1.0, 12.5], (16_303_428 * 1024, 8_151_714 * 1024)));
        assert_eq!(reading.uptime, 12345);
        assert_eq!(reading.metrics().len(), 6);
    }

    #[test]
    fn the_hottest_sensor_counts_and_one_that_fails_is_left_out() {
        assert_eq!(HostReading::hottest(["41000\n", "55500\n", "-273\n", "", "N/A\n"]), Some(55.5));
        assert_eq!(HostReading::hottest(["-5250"]), Some(-5.25));
        assert_eq!(HostReading::hottest(["x"]), None);
        assert_eq!(HostReading::hottest([]), None);
    }

    #[test]
    fn disk_and_temperature_are_published_where_they_are_known() {
        let mut reading = HostReading::of("0.52 1.00 12.5", MEMINFO, "1.0").unwrap();
        reading.disk = Some(Room { total: 100, available: 7 });
        reading.temperature = Some(55.5);
        let metrics = reading.metrics();
        let published: Vec<_> = metrics[6..].iter().map(|metric| (&*metric.name, metric.value.clone())).collect();
        let wanted =
            [("Disk/Total", 100u64.into()), ("Disk/Available", 7u64.into()), ("Host/Temperature", 55.5.into())];
        assert_eq!(published, wanted.map(|(name, value): (&str, Value)| (name, Some(value))));
    }

    #[test]
    fn what_is_missing_is_named() {
        let fault =
            |load: &str, memory: &str, uptime: &str| HostReading::of(load, memory, uptime).unwrap_err().to_string();
        assert_eq!(fault("0.5 x", MEMINFO, "1.0"), "loadavg has no three averages");
        assert_eq!(fault("1 1 1", "MemTotal: 5 kB\n", "1.0"), "meminfo has no MemAvailable");
        assert_eq!(fault("1 1 1", "MemTotal: 99999999999999999999 kB\n", "1.0"), "meminfo has no MemTotal");
        assert_eq!(fault("1 1 1", MEMINFO, ""), "uptime has no seconds");
    }
}
