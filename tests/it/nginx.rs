//! A real web server: nginx of Debian.

use std::{
    env,
    fs::{self, File},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::wait;

/// An nginx on loopback ports, with its files in a folder; ends with the value.
pub(crate) struct Nginx {
    process: Child,
    folder: PathBuf,
}

/// A request that nginx logged.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) connection: String,
    pub(crate) protocol: String,
    pub(crate) status: String,
    pub(crate) target: String,
}

impl Nginx {
    /// Starts nginx with the contents of `http { }`, which listen on `port`; `None` (with a message)
    /// without it. In CI it must be there.
    pub(crate) fn start(folder: &Path, port: u16, http: &str) -> Option<Self> {
        let program = program("nginx")?;
        let mut text = format!(
            "daemon off;\nworker_processes 1;\npid {0}/nginx.pid;\nevents {{}}\nhttp {{\n\
             log_format own '$connection $server_protocol $status $request_uri';\n\
             access_log {0}/access.log own;\n",
            folder.display()
        );
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            text += &format!("{kind}_temp_path {}/{kind};\n", folder.display());
        }
        fs::write(folder.join("nginx.conf"), format!("{text}{http}\n}}\n")).unwrap();
        let errors = File::create(folder.join("nginx.err")).unwrap();
        let mut command = Command::new(program);
        command.args(["-e", "stderr", "-p"]).arg(folder);
        command.arg("-c").arg(folder.join("nginx.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(errors).spawn().unwrap();
        let mut nginx = Self {
            process,
            folder: folder.to_owned(),
        };
        nginx.wait_for(port);
        Some(nginx)
    }

    fn wait_for(&mut self, port: u16) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return;
            }
            if self.process.try_wait().unwrap().is_some() {
                break;
            }
            wait(Duration::from_millis(50));
        }
        let errors = fs::read_to_string(self.folder.join("nginx.err"));
        panic!("nginx does not start: {errors:?}");
    }

    /// Requests so far, at least `count`: nginx logs a request after it has sent the response.
    pub(crate) fn requests(&self, count: usize) -> Vec<Logged> {
        let read = || fs::read_to_string(self.folder.join("access.log")).unwrap();
        let mut log = read();
        for _ in 0..6_000 {
            // A line that is not yet complete has no end.
            if log.matches('\n').count() >= count {
                break;
            }
            wait(Duration::from_millis(10));
            log = read();
        }
        let lines = log.lines().map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut next = || words.next().unwrap_or_default();
            Logged {
                connection: next(),
                protocol: next(),
                status: next(),
                target: next(),
            }
        });
        lines.collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM: the main process ends its workers, which SIGKILL would leave behind.
        let pid = self.process.id().to_string();
        let ended = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(ended.is_ok_and(|status| status.success()));
        self.process.wait().unwrap();
    }
}

/// A program of Debian, or `None` (with a message). In CI it must be there.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    // Servers are not in the path of every user.
    let folders = env::split_paths(&paths).chain([PathBuf::from("/usr/sbin")]);
    let found = folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        assert!(
            env::var_os("CI").is_none(),
            "CI must have {name}: see .ci/run"
        );
        eprintln!("skipped: there is no {name}, install it with apt-get");
    }
    found
}
