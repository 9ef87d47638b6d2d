//! Shows the progress of a run: a bar for people, lines of JSON for programs, or nothing, at no cost.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use contract::{Event, Progress, Report};
use parking_lot::Mutex;

use super::{
    bar::{self, Moment},
    config::ProgressMode,
    output,
    screen::Screen,
    speed_window::SpeedWindow,
};
use syncer::monitor::Monitor;

const BAR_INTERVAL: Duration = Duration::from_millis(100);
const JSON_INTERVAL: Duration = Duration::from_millis(250);
const RATE_SPAN: Duration = Duration::from_secs(1);
const STEADY_SPAN: Duration = Duration::from_secs(8);

/// The form in which progress is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) mode: ProgressMode,
    pub(super) color: bool,
    /// Whether this end listens, and so waits before a run instead of dialling.
    pub(super) listens: bool,
}

/// Shows a [`Monitor`]'s progress from a thread of its own until it is dropped.
#[derive(Debug)]
pub(super) struct Live {
    view: Arc<Mutex<View>>,
    ticker: Option<Ticker>,
}

impl Live {
    /// Starts to show progress. Fails if the system cannot start a thread.
    pub(super) fn start(look: Look, screen: &Arc<Screen>, monitor: &Arc<Monitor>) -> io::Result<Self> {
        let view = Arc::new(Mutex::new(View::new(look, Arc::clone(screen), Arc::clone(monitor))));
        let interval = match look.mode {
            ProgressMode::None => None,
            ProgressMode::Bar => Some(BAR_INTERVAL),
            ProgressMode::Json => Some(JSON_INTERVAL),
        };
        let ticker = interval.map(|interval| Ticker::start(interval, Arc::clone(&view))).transpose()?;
        Ok(Self { view, ticker })
    }

    /// Shows that the run is over, and resets the display for the next one. No progress of the run is printed after its
    /// end.
    pub(super) fn finish(&self, report: &Report) {
        self.view.lock().finish(report);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(ticker) = self.ticker.take() {
            ticker.stop();
        }
        self.view.lock().screen.clear_bar();
    }
}

/// Calls [`View::tick`] at an interval.
#[derive(Debug)]
struct Ticker {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Ticker {
    fn start(interval: Duration, view: Arc<Mutex<View>>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let tick = move || {
            while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                view.lock().tick(Instant::now());
            }
        };
        let thread = thread::Builder::new().name("progress".into()).spawn(tick)?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        drop(self.stop);
        // It can only have panicked, and the panic's message was printed on standard error.
        let _ = self.thread.join();
    }
}

#[derive(Debug)]
struct View {
    look: Look,
    screen: Arc<Screen>,
    monitor: Arc<Monitor>,
    start: Instant,
    rate: SpeedWindow,
    steady_rate: SpeedWindow,
    /// The progress that was printed last.
    told: Progress,
}

impl View {
    fn new(look: Look, screen: Arc<Screen>, monitor: Arc<Monitor>) -> Self {
        let start = Instant::now();
        Self {
            look,
            screen,
            monitor,
            start,
            rate: SpeedWindow::new(RATE_SPAN, start),
            steady_rate: SpeedWindow::new(STEADY_SPAN, start),
            told: Progress::default(),
        }
    }

    fn tick(&mut self, now: Instant) {
        match self.look.mode {
            ProgressMode::None => {}
            ProgressMode::Bar => {
                let moment = self.moment(now);
                self.screen.draw_bar(bar::line(&moment, self.screen.bar_width(), self.look.color));
            }
            ProgressMode::Json => {
                if let Some(progress) = self.news(now) {
                    self.event(&Event::Progress(progress));
                }
            }
        }
    }

    fn moment(&mut self, now: Instant) -> Moment {
        let progress = self.progress(now);
        let steady_rate = self.steady_rate.sample(now, progress.bytes);
        let listens = self.look.listens;
        Moment { progress, listens, elapsed: now.duration_since(self.start), steady_rate }
    }

    /// Returns the progress, unless it was printed before; a rate that falls while no bytes arrive is also printed.
    fn news(&mut self, now: Instant) -> Option<Progress> {
        let progress = self.progress(now);
        let told = std::mem::replace(&mut self.told, progress);
        (progress != told).then_some(progress)
    }

    fn progress(&mut self, now: Instant) -> Progress {
        let progress = self.monitor.snapshot();
        Progress { rate: self.rate.sample(now, progress.bytes), ..progress }
    }

    fn finish(&mut self, report: &Report) {
        self.screen.clear_bar();
        if self.look.mode == ProgressMode::Json {
            self.event(&Event::Finished(Box::new(report.clone())));
        }
        self.monitor.reset();
        let (screen, monitor) = (Arc::clone(&self.screen), Arc::clone(&self.monitor));
        *self = Self::new(self.look, screen, monitor);
    }

    fn event(&self, event: &Event) {
        // A reader of standard output that went away does not end a run.
        if let Err(error) = self.screen.event(event) {
            output::failed(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::Phase;

    use super::*;

    fn view() -> View {
        let look = Look { mode: ProgressMode::Json, color: false, listens: false };
        View::new(look, Arc::new(Screen::new(false)), Arc::new(Monitor::default()))
    }

    #[test]
    fn progress_is_told_when_it_changed_and_only_then() {
        let mut view = view();
        let monitor = Arc::clone(&view.monitor);
        let at = |ms| Duration::from_millis(ms);
        let start = view.start;
        assert_eq!(view.news(start + at(250)), None, "a run that has not begun");
        monitor.set_phase(Phase::Transfer);
        monitor.set_totals(1, 100);
        monitor.add_bytes(50);
        let told = view.news(start + at(500)).unwrap();
        assert_eq!((told.phase, told.bytes, told.rate), (Phase::Transfer, 50, 100));
        assert_eq!(view.news(start + at(1000)).unwrap().rate, 50, "a falling rate");
        assert_eq!(view.news(start + at(1500)).unwrap().rate, 0, "a stall");
        assert_eq!(view.news(start + at(2000)), None, "a stall that goes on");
    }

    #[test]
    fn a_run_that_ended_leaves_nothing_to_tell() {
        let mut view = view();
        view.monitor.set_phase(Phase::Commit);
        view.monitor.add_files(3);
        view.look.mode = ProgressMode::None;
        view.finish(&Report::default());
        let later = view.start + JSON_INTERVAL;
        assert_eq!(view.news(later), None);
        view.monitor.add_files(1);
        assert_eq!(view.news(later + JSON_INTERVAL).unwrap().files, 1, "the next run counts from nothing");
    }
}
