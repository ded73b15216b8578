//! CPU time, which other load on the machine disturbs far less than wall time.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Clock ticks per second in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds that the calling thread has used.
pub fn thread_cpu() -> f64 {
    read(ClockId::ThreadCPUTime)
}

/// CPU seconds that this process has used, all threads together.
pub fn process_cpu() -> f64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// CPU seconds that process `pid` has used, user and system, to a hundredth: `utime + stime` of
/// `/proc/PID/stat`.
pub fn used_by(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name of the command may hold blanks; it ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// Resident memory of process `pid`, in MB.
pub fn resident_mb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kb = line.split_whitespace().next().map_or(0.0, |kb| kb.parse().unwrap());
    kb * 1_024.0 / 1e6
}
