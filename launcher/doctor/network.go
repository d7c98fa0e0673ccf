package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// leastPids is the number of processes and threads that a job may need on a
// host. A lower limit is a warning.
const leastPids = 1024

// site contains facts about a host that judgeReport needs in addition to the
// host's report.
type site struct {
	line  hostfile.Host // the host's line in the resource file
	root  bool          // true if plx logs in as root
	alone bool          // true if no other machine has to connect to the host
}

// judgeReport adds findings from the report of the host's agent (plx's process
// on the host).
func (n *notes) judgeReport(r protocol.HostReport, s site) {
	n.judgeProcesses(r, s)
	for _, stray := range r.Strays {
		n.add(Warning, Leftovers, "plx stop "+stray.Job+" --hosts FILE", "job %s is over, and processes of it are left: %s", stray.Job, pids(stray.PIDs))
	}
	if r.Old > 0 {
		n.add(Warning, Leftovers, "plx prune --hosts FILE", "jobs that ended more than 30 days ago take room in ~/.plx")
	}
	if r.Broken != "" {
		n.add(Warning, Leftovers, "look at ~/.plx/jobs there", "its jobs could not be listed: %s", r.Broken)
	}
	if r.Refused != "" {
		n.add(Error, Network, "nic=NAME or addr=IP on its line of the resource file chooses an address that it has, --port-range other ports", "%s", r.Refused)
		return
	}
	n.judgeInterface(r, s)
}

// judgeProcesses adds findings about system settings that keep plx from ending
// all processes of a job.
func (n *notes) judgeProcesses(r protocol.HostReport, s site) {
	if r.NoSubreaper != "" {
		n.add(Error, Processes, "let the container or the security module of the host allow prctl", "plx cannot adopt orphans (PR_SET_CHILD_SUBREAPER): %s", r.NoSubreaper)
	}
	if r.NoPidfd != "" {
		n.add(Warning, Processes, "Linux 5.3 or later, and a container that allows pidfd_open", "plx has no safe handle on processes (pidfd_open): %s", r.NoPidfd)
	}
	if r.LogindKills && !r.Scope && !s.root {
		n.add(Warning, Processes, "loginctl enable-linger USER, so that the user has a systemd (busctl --user status); or KillUserProcesses=no in logind.conf",
			"logind kills the processes of a login that ends, and so detached jobs (--detach)")
	}
	if r.PidsMax > 0 && r.PidsMax < leastPids {
		n.add(Warning, Limits, "raise pids.max, or TasksMax of the user's slice or of sshd", "the control group of a login may have %d processes and threads", r.PidsMax)
	}
}

func pids(all []int) string {
	const most = 5
	text := strings.Trim(fmt.Sprint(all[:min(len(all), most)]), "[]")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "pid " + text
}

// judgeInterface checks the network interface through which the tasks of other
// hosts reach this host.
func (n *notes) judgeInterface(r protocol.HostReport, s site) {
	at := slices.IndexFunc(r.Links, func(l protocol.Interface) bool { return l.Name == r.Interface })
	if at < 0 {
		return
	}
	chosen := r.Links[at]
	if chosen.Loopback && !s.alone {
		n.add(Error, Network, "add addr=IP or nic=NAME to its line of the resource file",
			"its data address is on %s, which reaches the host itself only: ssh arrives through a tunnel?", chosen.Name)
		return
	}
	if s.line.Interface != "" || s.line.DataAddr != "" || s.alone || chosen.Speed == 0 {
		return
	}
	fastest := slices.MaxFunc(r.Links, func(a, b protocol.Interface) int { return cmp.Compare(usableSpeed(a), usableSpeed(b)) })
	if usableSpeed(fastest) > chosen.Speed {
		n.add(Warning, Network, "--nic "+fastest.Name+", or nic="+fastest.Name+" on lines of the resource file",
			"data goes over %s (%d Mbit/s), and %s has %d Mbit/s", chosen.Name, chosen.Speed, fastest.Name, fastest.Speed)
	}
}

// usableSpeed returns the speed of the interface in Mbit/s, or 0 if other
// hosts cannot send data over it.
func usableSpeed(l protocol.Interface) int {
	dialable := slices.ContainsFunc(l.Addrs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && !p.Addr().IsLinkLocalUnicast()
	})
	if !l.Up || !l.Running || l.Loopback || !dialable {
		return 0
	}
	return l.Speed
}

// judgePeers adds an error for each peer to which the host could not connect.
// peers are the hosts that plx asked it to dial. Failures for any other host
// are ignored.
func (n *notes) judgePeers(failures []protocol.CheckupFailure, peers []protocol.Peer) {
	for _, f := range failures {
		at := slices.IndexFunc(peers, func(p protocol.Peer) bool { return p.Index == f.Peer.Index })
		if at < 0 {
			continue
		}
		p := peers[at]
		if f.Connected {
			n.add(Error, Network, "the network may not pass packets of the interfaces' MTU: lower it on both hosts (ip link set dev NAME mtu 1500), or let ICMP through",
				"connects to host %s at %s for data, and 64 KiB do not arrive: %s", p.Host, p.Addr, f.Cause)
			continue
		}
		n.add(Error, Network, "open ports in the firewalls between them (--port-range), or choose another network: --nic",
			"cannot connect to host %s at %s for data: %s", p.Host, p.Addr, f.Cause)
	}
}
