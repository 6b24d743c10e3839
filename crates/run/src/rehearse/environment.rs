//! The environment of a rehearsed command: its own, with the library preloaded, the shim on Python's path, the phantom's
//! devices and the shim's settings.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use tonnage_core::rehearsal::context_bytes;

use super::Options;
use super::installed::Installed;

/// What the variables are made of.
pub(super) struct Environment<'a> {
    pub options: &'a Options,
    pub installed: &'a Installed,
    pub records: &'a Path,
}

impl Environment<'_> {
    /// The variables to set; `inherited` looks up what the command would have had.
    pub fn variables(&self, inherited: &dyn Fn(&str) -> Option<OsString>) -> Vec<(String, OsString)> {
        let options = self.options;
        let mut variables = vec![
            ("LD_PRELOAD".to_owned(), path_first(self.installed.library().as_os_str(), inherited("LD_PRELOAD"))),
            (
                "LD_LIBRARY_PATH".to_owned(),
                path_first(self.installed.libraries().as_os_str(), inherited("LD_LIBRARY_PATH")),
            ),
            ("PYTHONPATH".to_owned(), path_first(self.installed.python().as_os_str(), inherited("PYTHONPATH"))),
            ("TONNAGE_PHANTOM_DEVICES".to_owned(), visible_devices(options).into()),
            ("TONNAGE_PHANTOM_LEDGER".to_owned(), self.records.join("ledger").into()),
            ("TONNAGE_PHANTOM_USAGE".to_owned(), self.records.into()),
            ("TONNAGE_PHANTOM_PYTHONPATH".to_owned(), self.installed.python().into()),
            ("TONNAGE_REHEARSE_DIR".to_owned(), self.records.into()),
        ];
        let bounds = [
            ("STEPS", options.steps),
            ("SECONDS", options.seconds),
            ("STEADY", Some(options.steady.unwrap_or(0))),
            ("PATIENCE", Some(options.patience)),
            ("GENERATE_LENGTH", options.generate_length),
            ("WORST_EXPERTS", options.worst_experts.then_some(1)),
            ("VALUES", (!options.values).then_some(0)),
            ("LONGEST", options.longest.then_some(1)),
            ("ROW_LENGTH", options.row_length),
        ];
        for (name, value) in bounds {
            variables.extend(value.map(|value| (format!("TONNAGE_REHEARSE_{name}"), value.to_string().into())));
        }
        // cuDNN's attention takes workspaces that nobody has measured; PyTorch then takes its own kernels.
        let cudnn = "TORCH_CUDNN_SDPA_DEPRIORITIZED";
        variables.push((cudnn.to_owned(), inherited(cudnn).unwrap_or_else(|| "1".into())));
        variables
    }
}

/// `path` before those that are there.
fn path_first(path: &OsStr, others: Option<OsString>) -> OsString {
    let mut paths = path.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        paths.push(":");
        paths.push(others);
    }
    paths
}

/// The phantom's devices, as its `config` reads them.
fn visible_devices(options: &Options) -> String {
    let (gpu, count) = (&options.gpu, options.gpus);
    let (major, minor) = gpu.compute_capability;
    let name: String = gpu.name.chars().map(|c| if matches!(c, ',' | ';' | '=') { ' ' } else { c }).collect();
    let roomier = options.asked.iter().find(|asked| asked.name == gpu.name && asked.usable_bytes < gpu.usable_bytes);
    let stands_for = roomier.map_or_else(String::new, |asked| format!(",stands_for={}", asked.usable_bytes));
    format!(
        "name={name},total={},context={},cc={major}.{minor},sms={},count={count}{stands_for}",
        gpu.usable_bytes,
        context_bytes(gpu),
        gpu.multiprocessors
    )
}

#[cfg(test)]
mod tests {
    use tonnage_core::gpu::Gpu;

    use super::*;

    fn variables(inherited: &[(&str, &str)]) -> Vec<(String, String)> {
        let options = Options {
            command: vec!["python".into(), "train.py".into()],
            gpu: Gpu::parse("l4").unwrap(),
            asked: Vec::new(),
            gpus: 2,
            steps: Some(7),
            seconds: None,
            steady: None,
            generate_length: None,
            patience: 60,
            worst_experts: true,
            values: true,
            longest: true,
            row_length: None,
            stdout_to_stderr: false,
        };
        let installed =
            Installed { folder: "/installed".into(), library: "/installed/lib/libtonnage_phantom.so".into() };
        let environment = Environment { options: &options, installed: &installed, records: Path::new("/records") };
        let look = |name: &str| inherited.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let text = |(name, value): (String, OsString)| (name, value.into_string().unwrap());
        environment.variables(&look).into_iter().map(text).collect()
    }

    fn value<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
        variables.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn the_commands_own_paths_come_after_ours() {
        let variables = variables(&[("PYTHONPATH", "/mine"), ("LD_PRELOAD", "")]);
        assert!(value(&variables, "PYTHONPATH").unwrap().ends_with("/python:/mine"));
        assert!(value(&variables, "LD_PRELOAD").unwrap().ends_with("/lib/libtonnage_phantom.so"));
    }

    #[test]
    fn bounds_that_nobody_gave_are_not_set() {
        let variables = variables(&[]);
        assert_eq!(value(&variables, "TONNAGE_REHEARSE_STEPS"), Some("7"));
        assert_eq!(value(&variables, "TONNAGE_REHEARSE_STEADY"), Some("0"));
        assert_eq!(value(&variables, "TONNAGE_REHEARSE_SECONDS"), None);
        assert_eq!(value(&variables, "TONNAGE_REHEARSE_WORST_EXPERTS"), Some("1"));
        assert_eq!(value(&variables, "TONNAGE_REHEARSE_VALUES"), None);
    }

    #[test]
    fn the_phantom_is_of_the_catalog() {
        let expected = "name=NVIDIA L4,total=23653777408,context=236978176,cc=8.9,sms=58,count=2";
        assert_eq!(value(&variables(&[]), "TONNAGE_PHANTOM_DEVICES"), Some(expected));
    }
}
