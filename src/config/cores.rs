//! The number of threads that this process can keep busy.

use std::path::Path;

/// Cores of the affinity mask, or the CPU quota of the control group rounded up, if that is less. `available_parallelism`
/// rounds down, so with a quota of 1.5 cores a third of the quota would stay unused.
pub(super) fn usable() -> usize {
    #[cfg(target_os = "linux")]
    if let Ok(mask) = rustix::thread::sched_getaffinity(None) {
        let cores = usize::try_from(mask.count()).unwrap_or(1);
        return quota(Path::new("/")).map_or(cores, |quota| quota.min(cores)).max(1);
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The quota of the control group (version 1 or 2) or of its parents in cores, rounded up; the least counts. Files are below
/// `root`.
fn quota(root: &Path) -> Option<usize> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let of_group = |line: &str| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
        let mount = match controllers {
            "" => "sys/fs/cgroup",
            names if names.split(',').any(|name| name == "cpu") => "sys/fs/cgroup/cpu",
            _ => return None,
        };
        // A container may see the host's path of its group, but only its own group, at the mount point.
        let below = |folder: &Path| root.join(mount).join(folder.strip_prefix("/").unwrap_or(folder));
        Path::new(path).ancestors().filter_map(|folder| of_folder(&below(folder))).min()
    };
    groups.lines().filter_map(of_group).min()
}

fn of_folder(folder: &Path) -> Option<usize> {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    let text = read("cpu.max").or_else(|| Some(read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?))?;
    // Without a limit the quota is "max" or -1.
    let mut numbers = text.split_whitespace().map_while(|number| number.parse::<usize>().ok());
    let (quota, period) = (numbers.next()?, numbers.next().filter(|period| *period > 0)?);
    Some(quota.div_ceil(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Option<usize> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        quota(root.path())
    }

    #[test]
    fn the_least_quota_of_a_group_and_its_parents_counts() {
        let group = ("proc/self/cgroup", "0::/pod/box\n");
        let parent = ("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
        assert_eq!(of(&[group, parent, ("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n")]), Some(2));
        assert_eq!(of(&[group, parent, ("sys/fs/cgroup/pod/box/cpu.max", "50000 100000\n")]), Some(1));
        assert_eq!(of(&[group, ("sys/fs/cgroup/cpu.max", "250000 100000\n")]), Some(3), "a container's own mount");
        assert_eq!(of(&[group]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn version_one_has_two_files() {
        let group = ("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n0::/a\n");
        let period = ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
        assert_eq!(of(&[group, period, ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n")]), Some(2));
        assert_eq!(of(&[group, period, ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n")]), None);
    }
}
