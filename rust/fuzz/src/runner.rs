//! Runs one target for some minutes, within this process.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::finding;
use crate::mutation::mutate;
use crate::random::Random;
use crate::targets::Target;

/// An input that takes longer counts as a hang. The longest inputs take a hundredth of it, even beside other work.
const HANG: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);

/// Inputs that are kept because their outcome was new.
const MAX_KEPT: usize = 4_096;
const MAX_KEPT_BYTES: usize = 4_096;

/// Tries to make a finding smaller.
const SHRINKING: usize = 20_000;

/// One target at work.
pub(crate) struct Run {
    target: &'static Target,
    random: Random,
    kept: Vec<Vec<u8>>,
    outcomes: HashSet<u64>,
    current: File,
    /// Number of the input in use: the watch sees by it whether there was progress.
    number: Arc<AtomicU64>,
    slowest: Duration,
}

impl Run {
    /// Begins with the target's own examples, and with what earlier runs have kept.
    pub(crate) fn new(target: &'static Target, seed: u64) -> io::Result<Self> {
        let folder = finding::folder(target.name).join("kept");
        fs::create_dir_all(&folder)?;
        let mut kept = (target.examples)();
        let mut paths = fs::read_dir(&folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort_unstable();
        for path in paths {
            kept.push(fs::read(path)?);
        }
        Ok(Self {
            target,
            random: Random::new(seed),
            kept,
            outcomes: HashSet::new(),
            current: File::create(finding::current(target.name))?,
            number: Arc::new(AtomicU64::new(0)),
            slowest: Duration::ZERO,
        })
    }

    /// Gives inputs to the target until the time is over, or there is a finding.
    pub(crate) fn run(mut self, minutes: f64) -> io::Result<ExitCode> {
        self.watch();
        panic::set_hook(Box::new(|_| {}));
        let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
        let known = self.kept.clone();
        for input in &known {
            let Some(outcome) = self.give(input)? else {
                return self.panicked(input);
            };
            self.outcomes.insert(outcome);
        }
        while Instant::now() < until {
            let mut input = self.random.choose(&self.kept).cloned().unwrap_or_default();
            mutate(&mut self.random, &mut input, self.target.words, &self.kept);
            let Some(outcome) = self.give(&input)? else {
                return self.panicked(&input);
            };
            let is_small = input.len() <= MAX_KEPT_BYTES && self.kept.len() < MAX_KEPT;
            if self.outcomes.insert(outcome) && is_small {
                let folder = finding::folder(self.target.name).join("kept");
                fs::write(folder.join(format!("{outcome:016x}")), &input)?;
                self.kept.push(input);
            }
        }
        println!(
            "{}: {} inputs in {minutes} minutes, {} outcomes, the slowest input took {} ms, no finding",
            self.target.name,
            self.number.load(Ordering::Relaxed),
            self.outcomes.len(),
            self.slowest.as_millis(),
        );
        Ok(ExitCode::SUCCESS)
    }

    /// The outcome of an input; None if the target panicked.
    fn give(&mut self, input: &[u8]) -> io::Result<Option<u64>> {
        self.current.set_len(0)?;
        self.current.rewind()?;
        self.current.write_all(input)?;
        self.number.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let outcome = outcome(self.target, input);
        if started.elapsed() > self.slowest {
            self.slowest = started.elapsed();
            fs::write(finding::folder(self.target.name).join("slowest"), input)?;
        }
        Ok(outcome)
    }

    /// Ends the process when one input takes too long.
    fn watch(&self) {
        let (name, number) = (self.target.name, Arc::clone(&self.number));
        thread::spawn(move || {
            let mut seen = (u64::MAX, Instant::now());
            loop {
                thread::sleep(POLL);
                let now = number.load(Ordering::Relaxed);
                if now != seen.0 {
                    seen = (now, Instant::now());
                } else if now > 0 && seen.1.elapsed() > HANG {
                    println!("{name}: an input took more than {} s", HANG.as_secs());
                    let done = fs::read(finding::current(name))
                        .and_then(|input| finding::report(name, &input));
                    process::exit(done.map_or(1, |()| i32::from(finding::HANGS)));
                }
            }
        });
    }

    /// Reports an input, made as small as possible.
    fn panicked(&mut self, input: &[u8]) -> io::Result<ExitCode> {
        let mut smallest = input.to_vec();
        for _ in 0..SHRINKING {
            self.number.fetch_add(1, Ordering::Relaxed);
            let mut smaller = smallest.clone();
            let place = self.random.below(smaller.len());
            let most = (smaller.len() - place).min(1 << self.random.below(12));
            let bytes = 1 + self.random.below(most);
            smaller.drain(place..(place + bytes).min(smallest.len()));
            if outcome(self.target, &smaller).is_none() {
                smallest = smaller;
            }
        }
        println!("{}: a panic", self.target.name);
        let _ = panic::take_hook();
        outcome(self.target, &smallest); // says where
        finding::report(self.target.name, &smallest)?;
        Ok(ExitCode::from(finding::PANICKED))
    }
}

fn outcome(target: &Target, input: &[u8]) -> Option<u64> {
    panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).ok()
}
