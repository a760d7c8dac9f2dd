//! Restricts requests to public hosts where data name the host: a name or an address of this
//! machine or of its network is refused, before anything is sent to it.
//!
//! Names are checked by their addresses at connection time, and the connection uses one of these.
//! So a name that had another address a moment ago gains nothing. Addresses in URLs never reach the
//! resolver, so they are checked at every redirect.

use std::{
    collections::HashSet,
    error::Error as StdError,
    fmt,
    future::Future,
    io, iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Message about a refused host.
pub const REFUSED: &str = "its host is not of the internet but of this machine or its network";

/// Error of a [`Resolver`] about a host that may not be requested.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{}", REFUSED)]
struct RefusedHost;

/// Returns true if a [`Resolver`] refused the host of a request that failed with `error`.
pub(crate) fn is_refused_host(error: &(dyn StdError + 'static)) -> bool {
    let mut causes = iter::successors(Some(error), |&error| error.source());
    causes.any(|error| error.is::<RefusedHost>())
}

/// The addresses of a name.
pub type FoundAddresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Function that looks names up.
pub type Lookup = Arc<dyn Fn(&str) -> FoundAddresses + Send + Sync>;

/// The lookup of this machine.
#[must_use]
pub fn system() -> Lookup {
    Arc::new(|name| {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.collect())
        })
    })
}

/// Rules for hosts that may be requested.
///
/// ```
/// use feedline_http::{Guard, Verdict};
/// use url::Url;
///
/// let mut guard = Guard::new(false);
/// guard.configure(&Url::parse("http://localhost:8080/")?);
/// for (url, verdict) in [
///     ("http://localhost:8080/rows", Verdict::Configured),
///     ("https://example.org/rows", Verdict::Resolve),
///     ("http://169.254.169.254/latest/meta-data", Verdict::Refuse),
/// ] {
///     assert_eq!(guard.judge(&Url::parse(url)?), verdict, "{url}");
/// }
/// # Ok::<(), url::ParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// True if all hosts are allowed.
    is_open: bool,
    /// Origins that the configuration names for requests: scheme, host and port.
    configured: HashSet<(String, String, u16)>,
    /// Hosts that the configuration permits on every port.
    configured_hosts: HashSet<String>,
    /// Hosts that data may lead to, whatever their address.
    private: HashSet<String>,
}

/// Verdict about a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed with any address.
    Configured,
    /// Allowed if the [`Resolver`] allows its addresses.
    Resolve,
    /// Not allowed.
    Refuse,
}

impl Guard {
    /// Creates a guard that allows all hosts if it `is_open`, otherwise only public ones.
    #[must_use]
    pub fn new(is_open: bool) -> Self {
        Self {
            is_open,
            ..Self::default()
        }
    }

    /// Permits requests to the origin of `url`, which the configuration names. For http at its
    /// usual port this includes https at its usual port, where such hosts redirect to. Other ports
    /// of the host are other services, which data must not reach.
    pub fn configure(&mut self, url: &Url) {
        let Some((scheme, host, port)) = origin(url) else {
            return;
        };
        if (scheme.as_str(), port) == ("http", 80) {
            self.configured.insert(("https".into(), host.clone(), 443));
        }
        self.configured.insert((scheme, host, port));
    }

    /// Permits requests to `host`, a name or an address from the configuration, at every port.
    pub fn configure_host(&mut self, host: &str) {
        self.configured_hosts.insert(normal(host));
    }

    /// Allows data to lead to `hosts`.
    pub fn let_in(&mut self, hosts: &[String]) {
        self.private.extend(hosts.iter().map(|host| normal(host)));
    }

    /// Returns the verdict about `url`.
    #[must_use]
    pub fn judge(&self, url: &Url) -> Verdict {
        let is_named = |names: &HashSet<String>| {
            let host = url.host_str().map(normal);
            host.is_some_and(|host| names.contains(&host))
        };
        match url.host() {
            None => Verdict::Refuse,
            Some(_) if self.is_open || is_named(&self.configured_hosts) => Verdict::Configured,
            Some(_) if origin(url).is_some_and(|origin| self.configured.contains(&origin)) => {
                Verdict::Configured
            }
            Some(_) if is_named(&self.private) => Verdict::Resolve,
            Some(Host::Domain(_)) => Verdict::Resolve,
            Some(Host::Ipv4(ip)) if is_public(ip.into()) => Verdict::Resolve,
            Some(Host::Ipv6(ip)) if is_public(ip.into()) => Verdict::Resolve,
            Some(_) => Verdict::Refuse,
        }
    }

    /// A resolver for the URLs to [`Verdict::Resolve`].
    #[must_use]
    pub fn resolver(&self, lookup: &Lookup) -> Resolver {
        Resolver {
            private: self.private.clone(),
            lookup: Arc::clone(lookup),
        }
    }
}

/// Returns scheme, host and port.
fn origin(url: &Url) -> Option<(String, String, u16)> {
    let host = normal(url.host_str()?);
    Some((url.scheme().to_owned(), host, url.port_or_known_default()?))
}

/// Normalizes a host of a URL, without a dot at its end; a version 6 address may lack its brackets.
fn normal(host: &str) -> String {
    let host = host.trim_end_matches('.');
    match (host.parse::<Ipv6Addr>(), Host::parse(host)) {
        (Ok(ip), _) => format!("[{ip}]"),
        (_, Ok(host)) => host.to_string(),
        _ => host.to_ascii_lowercase(),
    }
}

/// Resolves names to public addresses only, which are then connected to.
pub struct Resolver {
    /// Names of any address.
    private: HashSet<String>,
    lookup: Lookup,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.private).finish()
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (self.lookup)(name.as_str());
        let is_private = self.private.contains(&normal(name.as_str()));
        Box::pin(async move {
            let found = found.await?.into_iter();
            let allowed: Vec<_> = found
                .filter(|at| is_private || is_public(at.ip()))
                .collect();
            if allowed.is_empty() {
                return Err(RefusedHost.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Returns true if an address is public (IANA's registries of special addresses, by global
/// reachability).
///
/// Two that IANA lists as reachable are not: 168.63.129.16, where Azure's machines find their host,
/// and 192.88.99.0/24, which led to relays of 6to4. Addresses of a network's own NAT64 prefix
/// cannot be distinguished from others.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// Address that gives a virtual machine of Azure its certificates and settings.
const AZURE_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = match a {
        0 | 10 | 127 | 224..=255 => true,
        100 => (64..128).contains(&b),
        168 => ip == AZURE_HOST,
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || (b == 0 && matches!(c, 0 | 2)) || (b == 88 && c == 99),
        198 => matches!(b, 18 | 19) || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        _ => false,
    };
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let [a, b, ..] = segments;
    // Addresses that embed one of version 4: mapped ones, and those of translators (NAT64, 6to4).
    let [.., high, low] = segments;
    let within = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        (0, 0) => ip.to_ipv4_mapped().is_some_and(is_public_v4),
        (0x64, 0xff9b) => segments[2..6] == [0; 4] && within(high, low),
        (0x2002, _) => within(b, segments[2]),
        // Teredo, benchmarks, documentation.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error around another one, as a client has it.
    #[derive(Debug, thiserror::Error)]
    #[error("dns error")]
    struct Outer(#[source] RefusedHost);

    #[test]
    fn only_addresses_of_the_internet_may_be_asked() {
        let check = |host: &str, expected: bool| {
            let url = Url::parse(&format!("http://{host}/a.png")).unwrap();
            let verdict = Guard::default().judge(&url);
            assert_eq!(verdict == Verdict::Resolve, expected, "{host}");
        };
        for public in [
            "8.8.8.8",
            "172.32.0.1",
            "168.63.129.17",
            "192.88.98.1",
            "[2606:4700::1111]",
            "[::ffff:8.8.8.8]",
            "[64:ff9b::808:808]",
        ] {
            check(public, true);
        }
        for private in [
            "127.0.0.1",
            "0x7f.1",
            "2130706433",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "192.88.99.1",
            "[::ffff:168.63.129.16]",
            "[::1]",
            "[::]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::a00:1]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fc00::1]",
            "[ff02::1]",
            "[2001:db8::1]",
        ] {
            check(private, false);
        }
        check("a.example", true);
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_refused() {
        let resolver = Guard::default().resolver(&system());
        let refused = resolver.resolve("localhost".parse().unwrap()).await;
        let refused = refused.err().unwrap();
        assert_eq!(refused.to_string(), REFUSED);
        assert!(is_refused_host(&*refused));
        assert!(is_refused_host(&io::Error::other(Outer(RefusedHost))));
        // Its text decides nothing.
        assert!(!is_refused_host(&io::Error::other(REFUSED)));
    }

    #[test]
    fn what_the_configuration_names_may_be_asked_and_its_neighbours_may_not() {
        let mut guard = Guard::default();
        for url in ["http://127.0.0.1:81/", "http://10.0.0.9/"] {
            guard.configure(&Url::parse(url).unwrap());
        }
        guard.configure_host("Wiki.Corp");
        guard.let_in(&["API.corp.".into(), "10.0.0.7".into(), "fd00::1".into()]);
        let check = |url: &str, expected| {
            let verdict = guard.judge(&Url::parse(url).unwrap());
            assert_eq!(verdict, expected, "{url}");
        };
        check("http://127.0.0.1:81/x", Verdict::Configured);
        check("http://0x7f.1:81/", Verdict::Configured);
        check("http://127.0.0.1:82/", Verdict::Refuse);
        check("https://127.0.0.1:81/", Verdict::Refuse);
        check("http://127.0.0.1/", Verdict::Refuse);
        check("https://10.0.0.9/", Verdict::Configured);
        check("https://10.0.0.9:8443/", Verdict::Refuse);
        check("http://wiki.corp./", Verdict::Configured);
        check("https://wiki.corp:8443/", Verdict::Configured);
        check("http://127.0.0.2/", Verdict::Refuse);
        check("http://api.corp/", Verdict::Resolve);
        check("http://10.0.0.7/", Verdict::Resolve);
        check("http://[fd00::1]/", Verdict::Resolve);
        check("http://10.0.0.8/", Verdict::Refuse);
        check("http://10.0.0.7@10.0.0.8/", Verdict::Refuse);
        check("http://127.0.0.1.other.example/", Verdict::Resolve);
        check("data:,x", Verdict::Refuse);
    }

    #[tokio::test]
    async fn of_several_addresses_only_those_of_the_internet_are_connected_to() {
        let guard = {
            let mut guard = Guard::default();
            guard.let_in(&["intranet.example".into()]);
            guard
        };
        let mixed: Lookup = Arc::new(|_| {
            let all = ["10.0.0.1:0", "8.8.8.8:0", "[::ffff:127.0.0.1]:0"];
            Box::pin(async move { Ok(all.map(|at| at.parse().unwrap()).to_vec()) })
        });
        let resolver = guard.resolver(&mixed);
        let found = async |name: &str| -> Vec<SocketAddr> {
            resolver
                .resolve(name.parse().unwrap())
                .await
                .ok()
                .unwrap()
                .collect()
        };
        assert_eq!(found("a.example").await, ["8.8.8.8:0".parse().unwrap()]);
        assert_eq!(found("intranet.example").await.len(), 3);
    }
}
