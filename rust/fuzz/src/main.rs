//! Fuzzing: gives changed inputs to the decoders of the core, and reports inputs that make one panic, abort or hang.
//!
//! `./x fuzz [TARGET] [--minutes N] [--seed N]`. Each target runs in a process of its own, so that even a stack overflow
//! or an allocation that fails is a finding. A process writes every input into a file before it uses it. Inputs with a
//! new outcome are kept under `.state/fuzz`, and the next run begins with them.

mod finding;
mod inputs;
mod mutation;
mod random;
mod runner;
mod targets;

use std::error::Error;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;
use std::{env, fs, io, thread};

use runner::Run;
use targets::TARGETS;

type Failure = Box<dyn Error>;

/// How often the parent looks whether a process has ended.
const POLL: Duration = Duration::from_millis(100);

struct Options {
    target: Option<String>,
    minutes: f64,
    seed: u64,
    is_child: bool,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        target: None,
        minutes: 10.0,
        seed: 1,
        is_child: false,
    };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--minutes" => options.minutes = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--child" => options.is_child = true,
            name if TARGETS.iter().any(|target| target.name == name) => {
                options.target = Some(argument);
            }
            _ => {
                let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                let known = known.join(", ");
                return Err(
                    format!("unknown target or option '{argument}'; targets: {known}").into(),
                );
            }
        }
    }
    Ok(options)
}

fn main() -> Result<ExitCode, Failure> {
    let options = options()?;
    if options.is_child {
        let wanted = options.target.as_deref();
        let Some(target) = TARGETS.iter().find(|one| Some(one.name) == wanted) else {
            return Err("--child needs a target".into());
        };
        return Ok(Run::new(target, options.seed)?.run(options.minutes)?);
    }
    let mut waiting: Vec<&str> = TARGETS.iter().map(|target| target.name).rev().collect();
    if let Some(target) = &options.target {
        waiting = vec![target];
    }
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let mut running: Vec<(&str, Child)> = Vec::new();
    let mut failed = false;
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < at_once
            && let Some(name) = waiting.pop()
        {
            running.push((name, child(name, &options)?));
        }
        thread::sleep(POLL);
        let mut left = Vec::new();
        for (name, mut process) in running {
            match process.try_wait()? {
                None => left.push((name, process)),
                Some(status) if status.success() => {}
                Some(status) => {
                    failed = true;
                    if status.code().is_none_or(|code| !finding::is_reported(code)) {
                        println!("{name}: the process died ({status})");
                        finding::report(name, &fs::read(finding::current(name))?)?;
                    }
                }
            }
        }
        running = left;
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Starts a process for one target.
fn child(name: &str, options: &Options) -> io::Result<Child> {
    let (minutes, seed) = (options.minutes.to_string(), options.seed.to_string());
    Command::new(env::current_exe()?)
        .args([name, "--child", "--minutes", &minutes, "--seed", &seed])
        .spawn()
}
