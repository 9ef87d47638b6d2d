//! Tries the way from the cluster that dials to the endpoint, by a pod with the labels, the node and the user of a
//! syncer. It makes a key that nobody lists: an endpoint that refuses it has shown its own key before.

use std::time::Duration;

use contract::{Event, Reason, Report, Side};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::sleep,
};

use super::super::{
    args::PodFlags,
    claim_pod::ClaimPod,
    cluster::Cluster,
    error::PluginError,
    exec_stream::ExecStream,
    one_pod::{OnePod, show_errors},
    output,
    pair_args::{MadeFlags, PairFlags},
};
use crate::{
    api::ServiceProtocol, ends::remote_end::RemoteEnd, human, signals::Stops, user_pods::one_off_job::ENGINE,
};

/// The command's name, in the name of the pod.
const COMMAND: &str = "pair";
/// A folder of the pod in which the key is made.
const HOME: &str = "/tmp";
/// How long one carrier is tried, in seconds.
const DIAL_S: u32 = 10;
/// How many times all are tried: a load balancer takes a while until it passes packets on.
const ROUNDS: u32 = 3;
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(3);

/// What the engine has said.
struct Called {
    /// Its exit status.
    status: u8,
    /// Its report, if it printed one.
    report: Option<Box<Report>>,
}

/// What came of dialling over one carrier.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// The endpoint showed its key.
    Own,
    /// Somebody showed another key.
    OtherKey,
    /// Something else was in the way, such as another version.
    Other(String),
    /// Nobody answered.
    None(String),
}

impl Answer {
    fn of(report: &Report) -> Self {
        match &report.reason {
            None | Some(Reason::KeyNotAccepted) => Self::Own,
            Some(Reason::IdentityRefused) => Self::OtherKey,
            // A name that no server knows yet may be that of a load balancer which is being made.
            Some(Reason::PeerLost | Reason::AddressUnusable) => Self::None(report.message.clone()),
            Some(_) => Self::Other(report.message.clone()),
        }
    }
}

/// What a trial found.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Runs can go over UDP.
    Udp,
    /// Runs can go over TCP alone. The endpoint offers UDP, too, if the flag is set.
    Tcp { is_udp_lost: bool },
    /// This keeps runs from the endpoint. It may pass if the flag is set.
    Blocked { why: String, hint: &'static str, may_pass: bool },
}

/// Judges what came of dialling over UDP and, where that did not do, TCP. `None` was not tried.
fn judge(address: &str, udp: Option<&Answer>, tcp: Option<&Answer>) -> Verdict {
    let answers = [udp, tcp];
    let mut answers = answers.iter().copied().flatten();
    let blocked = |why, hint, may_pass| Verdict::Blocked { why, hint, may_pass };
    if answers.clone().any(|it| *it == Answer::OtherKey) {
        let why = format!("another key than the SyncEndpoint's is shown at {address}");
        return blocked(why, "see which Service, load balancer or DNS record has that address", false);
    }
    match (udp, tcp) {
        (Some(Answer::Own), _) => return Verdict::Udp,
        (udp, Some(Answer::Own)) => return Verdict::Tcp { is_udp_lost: udp.is_some() },
        _ => {}
    }
    if let Some(Answer::Other(why)) = answers.clone().find(|it| matches!(it, Answer::Other(_))) {
        return blocked(
            format!("{address}: {why}"),
            "run the same version of Volferry in both clusters",
            false,
        );
    }
    let ways = match (udp, tcp) {
        (Some(_), Some(_)) => "neither over UDP nor over TCP",
        (Some(_), None) => "not over UDP, and the SyncEndpoint offers nothing else",
        _ => "not over TCP, and the SyncEndpoint offers nothing else",
    };
    let last = match answers.next_back() {
        Some(Answer::None(why)) if !why.is_empty() => format!(" ({why})"),
        _ => String::new(),
    };
    let hint = "open its port in firewalls, security groups and NetworkPolicies; --service and --host-name give \
                another address";
    blocked(format!("{address} answers {ways}{last}"), hint, true)
}

/// Tries the way, and says what it found. The pod is gone afterwards, however that ends.
pub(super) async fn run(
    dials: &Cluster,
    flags: &PairFlags,
    made: &MadeFlags,
    served: &RemoteEnd,
    offered: &[ServiceProtocol],
) -> Result<(), PluginError> {
    let mut stops = Stops::new().map_err(PluginError::Signals)?;
    let pod = PodFlags { image: made.image.clone(), user: None, timeout: flags.timeout };
    let mut planned =
        ClaimPod::plan(dials, &flags.dialling_claim().claim, COMMAND, Side::Source, &pod).await?;
    planned.pass_for_syncer(HOME);
    let made = planned.make(dials).await?;
    let tried = tokio::select! {
        tried = try_all(&made, served, offered) => tried,
        () = stops.next() => Err(PluginError::Stopped { is_gone: true }),
        () = sleep(flags.timeout) => Err(PluginError::TooLong { after: human::duration(flags.timeout) }),
    };
    made.end(tried).await
}

async fn try_all(made: &OnePod, served: &RemoteEnd, offered: &[ServiceProtocol]) -> Result<(), PluginError> {
    let there = TrialPod { made, pod: made.running().await?, address: served.to_string() };
    there.make_key(served).await?;
    for round in 1.. {
        let verdict = there.inspect(offered).await?;
        match verdict {
            Verdict::Blocked { may_pass: true, .. } if round < ROUNDS => sleep(PAUSE).await,
            verdict => return there.report(verdict),
        }
    }
    Ok(())
}

/// The pod, and the address that it dials.
struct TrialPod<'a> {
    made: &'a OnePod,
    pod: String,
    address: String,
}

impl TrialPod<'_> {
    /// Has the pod make a key, and know the endpoint's.
    async fn make_key(&self, served: &RemoteEnd) -> Result<(), PluginError> {
        let key = format!("--service-key={}", served.public_key);
        let status = self.call(&["enroll", &key, "--", &self.address]).await?.status;
        if status == 0 { Ok(()) } else { Err(unusable(status)) }
    }

    async fn inspect(&self, offered: &[ServiceProtocol]) -> Result<Verdict, PluginError> {
        let offers = |protocol| offered.contains(&protocol);
        let udp = if offers(ServiceProtocol::Udp) { Some(self.dial("udp").await?) } else { None };
        let is_enough = udp.as_ref().is_some_and(|udp| !matches!(udp, Answer::None(_)));
        let takes_tcp = offers(ServiceProtocol::Tcp) && !is_enough;
        let tcp = if takes_tcp { Some(self.dial("tcp").await?) } else { None };
        Ok(judge(&self.address, udp.as_ref(), tcp.as_ref()))
    }

    /// Dials over one carrier.
    async fn dial(&self, link: &str) -> Result<Answer, PluginError> {
        let (link, timeout) = (format!("--link={link}"), format!("--connect-timeout={DIAL_S}"));
        let words = ["sync", "-n", &link, &timeout, "--progress=json", "--", HOME, &self.address];
        let Called { status, report } = self.call(&words).await?;
        report.map(|report| Answer::of(&report)).ok_or_else(|| unusable(status))
    }

    /// Runs the engine in the pod.
    async fn call(&self, words: &[&str]) -> Result<Called, PluginError> {
        let words: Vec<&str> = [ENGINE].iter().chain(words).copied().collect();
        let started = ExecStream::start(&self.made.pods, &self.pod, &words).await?;
        let mut lines = BufReader::new(started.output).lines();
        let mut report = None;
        let lost = |source| PluginError::Answer { pod: self.pod.clone(), source };
        while let Some(line) = lines.next_line().await.map_err(lost)? {
            if let Ok(Event::Finished(told)) = serde_json::from_str(&line) {
                report = Some(told);
            }
        }
        let status = started.status.code().await;
        if report.is_none() && status != 0 {
            show_errors(started.errors).await;
        }
        Ok(Called { status, report })
    }

    fn report(&self, verdict: Verdict) -> Result<(), PluginError> {
        let Self { address, .. } = self;
        match verdict {
            Verdict::Udp => {
                output::complain(&format!("{address} answers over UDP, with the SyncEndpoint's key"));
            }
            Verdict::Tcp { is_udp_lost: false } => {
                output::complain(&format!("{address} answers over TCP, with the SyncEndpoint's key"));
            }
            Verdict::Tcp { is_udp_lost: true } => {
                output::complain(&format!(
                    "warning: UDP does not get through to {address}; TCP does, and is used instead, which is slower"
                ));
                output::complain(
                    "hint: open the port for UDP, too, in firewalls, NetworkPolicies and the load balancer",
                );
            }
            Verdict::Blocked { why, hint, .. } => {
                return Err(PluginError::Blocked { why, hint: hint.into() });
            }
        }
        Ok(())
    }
}

/// Returns the error of a pod whose engine does not do what it is asked for.
fn unusable(status: u8) -> PluginError {
    let why = format!("the pod that tries the way failed with status {status}");
    PluginError::Blocked {
        why,
        hint: "what it said is above; --image names another image, --no-trial makes no pod".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(reason: Option<&str>) -> Report {
        Report { reason: reason.map(Into::into), message: "no answer".into(), ..Report::default() }
    }

    #[test]
    fn an_endpoint_that_refuses_a_strangers_key_has_answered() {
        let of = |reason| Answer::of(&report(reason));
        assert_eq!((of(Some("KeyNotAccepted")), of(None)), (Answer::Own, Answer::Own));
        assert_eq!(of(Some("IdentityRefused")), Answer::OtherKey);
        assert_eq!(of(Some("PeerLost")), Answer::None("no answer".into()));
        assert_eq!(of(Some("OtherProtocol")), Answer::Other("no answer".into()));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let (none, other) = (Answer::None("no route".into()), Answer::Other("another version".into()));
        let of = |udp: Option<&Answer>, tcp: Option<&Answer>| judge("h:1::web", udp, tcp);
        assert_eq!(of(Some(&Answer::Own), None), Verdict::Udp);
        assert_eq!(of(Some(&none), Some(&Answer::Own)), Verdict::Tcp { is_udp_lost: true });
        assert_eq!(of(None, Some(&Answer::Own)), Verdict::Tcp { is_udp_lost: false });
        let blocked = |udp, tcp, words: &str, passes: bool| match of(udp, tcp) {
            Verdict::Blocked { why, may_pass, .. } => {
                assert!(why.contains(words) && why.contains("h:1::web"), "{words}: {why}");
                assert_eq!(may_pass, passes, "{why}");
            }
            verdict => panic!("{words}: {verdict:?}"),
        };
        blocked(Some(&none), Some(&none), "neither over UDP nor over TCP (no route)", true);
        blocked(Some(&none), None, "not over UDP, and the SyncEndpoint offers nothing else", true);
        blocked(None, Some(&none), "not over TCP, and", true);
        // A key that is wrong over one of two is wrong.
        blocked(Some(&Answer::Own), Some(&Answer::OtherKey), "another key than the SyncEndpoint's", false);
        blocked(Some(&Answer::OtherKey), None, "another key than the SyncEndpoint's", false);
        blocked(Some(&other), None, "another version", false);
    }
}
