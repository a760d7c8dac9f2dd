//! Keeping to hosts of the internet where data say which hosts to ask: a name or an address of this machine or of its
//! network is refused, before anything is sent to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// What is said of a host that is refused.
pub(super) const REFUSED: &str =
    "its host is not of the internet but of this machine or its network";

/// Whether the host of `url` may be asked, by the address that it is; names are judged by the [`Resolver`].
pub(super) fn may_be_asked(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => is_public(ip.into()),
        Some(Host::Ipv6(ip)) => is_public(ip.into()),
        Some(Host::Domain(_)) => true,
        None => false,
    }
}

/// Resolves names to addresses of the internet alone, those that are then connected to.
#[derive(Debug)]
pub(super) struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|at| is_public(at.ip())).collect();
            if public.is_empty() {
                return Err(REFUSED.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is of the internet (IANA's registries of special addresses, by what is globally reachable).
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = match a {
        0 | 10 | 127 | 224..=255 => true,
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || (b == 0 && matches!(c, 0 | 2)),
        198 => matches!(b, 18 | 19) || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        _ => false,
    };
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let [a, b, ..] = segments;
    // Addresses that stand for one of version 4: mapped ones, and those of translators (NAT64, 6to4).
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

    #[test]
    fn only_addresses_of_the_internet_may_be_asked() {
        let check = |host: &str, expected: bool| {
            let url = Url::parse(&format!("http://{host}/a.png")).unwrap();
            assert_eq!(may_be_asked(&url), expected, "{host}");
        };
        for public in [
            "8.8.8.8",
            "172.32.0.1",
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
        let refused = Resolver.resolve("localhost".parse().unwrap()).await;
        assert_eq!(refused.err().unwrap().to_string(), REFUSED);
    }
}
