//! Checks of the members of etcd: what each says of itself, and its clock.

use std::time::Duration;

use insula_server::{
    Config, MemberStatus,
    config::StoreChoice,
    etcd_version::{self, Trust},
    survey_etcd,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{Finding, network::SKEW_MAX};
use crate::{
    client::{self, Client},
    kubeconfig::Entry,
};

const CHECK: &str = "etcd";
/// Longest wait for a connection, and for the time of a member.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Quota of an etcd that is started without `--quota-backend-bytes`.
const QUOTA_DEFAULT: u64 = 2 << 30;
/// Percentage of the quota from which on etcd is nearly full.
const FULL_PERCENT: u64 = 80;
const MIB: u64 = 1 << 20;

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let StoreChoice::Etcd(endpoints) = &config.store else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut cluster = 0;
    for (host, url) in endpoints.hosts.iter().zip(endpoints.urls()) {
        // etcd's client tries again and again, and its errors do not tell an absent member.
        let connected = match timeout(TIMEOUT, TcpStream::connect(host)).await {
            Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
            Err(_) => Err(format!("no connection within {} s", TIMEOUT.as_secs())),
        };
        if let Err(why) = connected {
            let fix = "start it, or correct store; a majority of the members must answer";
            findings.push(Finding::problem(CHECK, format!("{host}: {why}"), fix));
            continue;
        }
        match survey_etcd(&url, &config.etcd).await {
            Err(why) => findings.push(refused(host, &why)),
            Ok(status) => {
                if cluster != 0 && status.cluster != cluster {
                    let detail = format!("{host} belongs to another cluster than the members before it");
                    let fix = "list in store the members of one etcd cluster only";
                    findings.push(Finding::problem(CHECK, detail, fix));
                }
                cluster = status.cluster;
                let ahead = date(config, host, &url).await.map(|there| crate::now().0 - there);
                let trust = status.trust(config.etcd.accept_old_versions);
                findings.extend(judge(host, &status, trust, ahead));
            }
        }
    }
    findings
}

/// Returns the finding for a member that accepts connections and does not answer.
fn refused(host: &str, why: &str) -> Finding {
    let fix = if why.contains("authentication") || why.contains("user name is empty") {
        "set etcd.user and etcd.passwordFile to a user of etcd and its password"
    } else {
        "check etcd's log, the scheme of store (etcds:// for TLS) and the files of etcd.ca, etcd.certificate and \
         etcd.key"
    };
    Finding::problem(CHECK, format!("{host}: {why}"), fix)
}

/// Returns what is wrong with a member, or that nothing is. `ahead` are the seconds by which this
/// machine is ahead of it, if they are known.
fn judge(host: &str, status: &MemberStatus, trust: Trust, ahead: Option<i64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut problem = |detail: String, fix: String| findings.push(Finding::problem(CHECK, detail, fix));
    for error in &status.errors {
        let fix = match error {
            error if error.contains("NOSPACE") => format!(
                "etcd refuses all writes: free space with `etcdctl defrag --endpoints={host}` or raise \
                 --quota-backend-bytes, then `etcdctl alarm disarm`"
            ),
            error if error.contains("CORRUPT") => "members differ: find the wrong one with `etcdctl endpoint hashkv \
                                                   --cluster`, and replace it by a new member"
                .to_owned(),
            error if error.contains("no leader") => "start more members: a majority must run".to_owned(),
            _ => "etcd's log says more".to_owned(),
        };
        problem(format!("{host}: {error}"), fix);
    }
    if status.is_learner {
        let detail = format!("{host} is a learner, which answers no reads");
        problem(
            detail,
            "promote it with `etcdctl member promote`, or remove it from store".to_owned(),
        );
    } else if let Some(why) = status.unreadable.as_ref().filter(|_| status.errors.is_empty()) {
        let fix = match why.contains("permission denied") {
            true => {
                "give the user's role rights to read and write the prefix /insula/: `etcdctl role grant-permission \
                     ROLE readwrite --prefix /insula/`"
            }
            false => "start more members: a majority must run",
        };
        problem(format!("{host}: our keys cannot be read: {why}"), fix.to_owned());
    }
    if trust == Trust::Refused {
        let detail = format!("{host}: version {:?}, whose watches may lose events", status.version);
        let fix = format!(
            "upgrade etcd to {}, or accept it by etcd.acceptOldVersions",
            etcd_version::sound_versions()
        );
        findings.push(Finding::problem(CHECK, detail, fix));
    }
    findings.extend(space(host, status));
    findings.extend(clock(host, ahead));
    if findings.is_empty() {
        let role = if status.leads { "leader" } else { "follower" };
        let (quota, used) = (quota(status) / MIB, status.file_bytes.div_ceil(MIB));
        let clock = ahead.map_or_else(|| "unknown".to_owned(), |ahead| format!("{} s apart", ahead.abs()));
        let detail = format!(
            "{host}: version {}, {role}, {used} MiB of {quota} MiB, clock {clock}",
            status.version
        );
        findings.push(if trust == Trust::Sound {
            Finding::ok(CHECK, detail)
        } else {
            let fix = format!("upgrade etcd to {}", etcd_version::sound_versions());
            Finding::warning(CHECK, format!("{detail}; watches of this version may lose events"), fix)
        });
    }
    findings
}

fn quota(status: &MemberStatus) -> u64 {
    match status.quota_bytes {
        0 => QUOTA_DEFAULT,
        said => said,
    }
}

/// Warns of a file that is nearly as large as it may be.
fn space(host: &str, status: &MemberStatus) -> Option<Finding> {
    let (file, quota) = (status.file_bytes, quota(status));
    (file / MIB * 100 > quota / MIB * FULL_PERCENT).then(|| {
        let fix = match status.used_bytes < file / 2 {
            true => format!("most of it is free inside: `etcdctl defrag --endpoints={host}`"),
            false => {
                "raise --quota-backend-bytes of all members, or delete objects and then `etcdctl defrag`".to_owned()
            }
        };
        let said = if status.quota_bytes == 0 { " by default" } else { "" };
        let detail = format!(
            "{host}: {} MiB of {} MiB{said}; a full etcd refuses writes",
            file / MIB,
            quota / MIB
        );
        Finding::warning(CHECK, detail, fix)
    })
}

fn clock(host: &str, ahead: Option<i64>) -> Option<Finding> {
    let ahead = ahead.filter(|ahead| ahead.abs() > SKEW_MAX)?;
    let detail = format!("this machine is {ahead} s ahead of {host}");
    let fix = "let chrony or systemd-timesyncd set both clocks: certificates depend on them";
    Some(Finding::warning(CHECK, detail, fix))
}

/// Returns the time of a member in seconds since 1970, if it says so: etcd answers HTTP as well.
async fn date(config: &Config, host: &str, url: &str) -> Option<i64> {
    let etcd = &config.etcd;
    if url.starts_with("https://") {
        let entry = |content| Entry {
            content,
            ..Entry::default()
        };
        let cluster = entry(json!({"server": url, "certificate-authority": etcd.ca}));
        let user = entry(json!({"client-certificate": etcd.certificate, "client-key": etcd.key}));
        let client = Client::for_entries(&cluster, &user, Some(TIMEOUT)).ok()?;
        return client.date("/version").await.ok().flatten();
    }
    let asked = async {
        let mut stream = TcpStream::connect(host).await.ok()?;
        let request = format!("GET /version HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut head = vec![0; 4096];
        let count = stream.read(&mut head).await.ok()?;
        let text = String::from_utf8_lossy(&head[..count]).into_owned();
        let lines = text.lines().map(|line| line.split_once(": ").unwrap_or_default());
        let (_, date) = lines.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
        client::seconds(date)
    };
    timeout(TIMEOUT, asked).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn member(change: impl FnOnce(&mut MemberStatus)) -> MemberStatus {
        let mut status = MemberStatus {
            version: "3.6.5".to_owned(),
            leads: true,
            file_bytes: 20 * MIB,
            used_bytes: 10 * MIB,
            ..MemberStatus::default()
        };
        change(&mut status);
        status
    }

    #[test]
    fn each_state_of_a_member_has_its_fix() {
        let rows: [(MemberStatus, Verdict, &str, &str); 9] = [
            (
                member(|_| ()),
                Verdict::Ok,
                "version 3.6.5, leader, 20 MiB of 2048 MiB, clock 1 s apart",
                "",
            ),
            (
                member(|status| status.errors.push("memberID:1 alarm:NOSPACE".to_owned())),
                Verdict::Problem,
                "alarm:NOSPACE",
                "etcdctl alarm disarm",
            ),
            (
                member(|status| status.errors.push("etcdserver: no leader".to_owned())),
                Verdict::Problem,
                "no leader",
                "start more members",
            ),
            (
                member(|status| status.version = "3.3.27".to_owned()),
                Verdict::Problem,
                "3.3.27",
                "3.6.0 and later, or accept it by etcd.acceptOldVersions",
            ),
            (
                member(|status| status.version = "3.4.23".to_owned()),
                Verdict::Warning,
                "may lose events",
                "upgrade etcd to 3.4.31",
            ),
            (
                member(|status| status.is_learner = true),
                Verdict::Problem,
                "a learner",
                "member promote",
            ),
            (
                member(|status| status.unreadable = Some("etcdserver: permission denied".to_owned())),
                Verdict::Problem,
                "permission denied",
                "grant-permission",
            ),
            (
                member(|status| status.file_bytes = 1700 * MIB),
                Verdict::Warning,
                "1700 MiB of 2048 MiB by default",
                "etcdctl defrag --endpoints=a:1",
            ),
            (
                member(|status| {
                    (status.file_bytes, status.used_bytes, status.quota_bytes) = (9 * MIB, 8 * MIB, 10 * MIB)
                }),
                Verdict::Warning,
                "9 MiB of 10 MiB;",
                "raise --quota-backend-bytes",
            ),
        ];
        for (status, verdict, detail, fix) in rows {
            let findings = judge("a:1", &status, status.trust(false), Some(-1));
            assert_eq!(findings.len(), 1, "{findings:?}");
            let finding = &findings[0];
            assert_eq!(finding.verdict, verdict, "{finding:?}");
            assert!(
                finding.detail.contains(detail) && finding.fix.contains(fix),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn an_old_version_that_the_settings_accept_is_a_warning() {
        let status = member(|status| status.version = "3.5.12".to_owned());
        let findings = judge("a:1", &status, status.trust(true), Some(-1));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].verdict, Verdict::Warning, "{findings:?}");
    }

    #[test]
    fn clocks_may_differ_by_seconds() {
        assert!(clock("a:1", Some(SKEW_MAX)).is_none());
        assert!(clock("a:1", Some(-60)).is_some_and(|finding| finding.detail.contains("-60 s ahead of a:1")));
        assert!(clock("a:1", None).is_none());
    }
}
