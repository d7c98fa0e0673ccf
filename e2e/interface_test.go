//go:build long

package e2e

import (
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// Every host has two networks. The user selects the network for data, sets
// variables for single hosts, and makes mistakes with both. TestTorch selects
// a network for PyTorch.
func TestInterfaces(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2, Second: true})
	t.Run("settings of hosts", func(t *testing.T) { testHostSettings(b.in(t)) })
	t.Run("trainer", func(t *testing.T) { testTrainerOverInterface(b.in(t)) })
	t.Run("mistakes", func(t *testing.T) { testInterfaceMistakes(b.in(t)) })
	t.Run("IPv6 alone", func(t *testing.T) { testOnlyIPv6(b.in(t)) })
	b.hostsGone(0)
}

// A line of the resource file overrides a flag, and an environment variable
// overrides the choice of an interface.
func testHostSettings(b *bench) {
	file := b.ResourceFile(`h1: cpu NCCL_SOCKET_IFNAME=^lo A="x  # 'y'" # one`, "h2: cpu nic=eth0 A='' PLX_LOG_LEVEL=warn")
	out := b.want(0, "launch", "--hosts", file, "--ps", "none", "--nic", "eth1", "--env", "A=job", "--env", "B=job", b.script("show", "env")).stdout
	one, two := b.Hosts[0].SecondAddr, b.Hosts[1].Addr
	for task, want := range map[string]map[string]string{
		"worker:0": {"A": "x  # 'y'", "B": "job", "PLX_LOG_LEVEL": "info", "MASTER_ADDR": one,
			"GLOO_SOCKET_IFNAME": "eth1", "TP_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "^lo"},
		"worker:1": {"A": "", "B": "job", "PLX_LOG_LEVEL": "warn", "MASTER_ADDR": one, "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"},
	} {
		got := variables(lines(out, task))
		for name, value := range want {
			if v, set := got[name]; !set || v != value {
				b.t.Errorf("%s: %s=%q (set: %v), want %q", task, name, v, set, value)
			}
		}
		contains(b.t, got["PLX_CLUSTER"], `"`+one+":", `"`+two+":")
	}
}

// The model of examples/mlp has 400,000 values. In each step, every value
// travels between the two hosts at least twice.
func testTrainerOverInterface(b *bench) {
	mlp := testhosts.Binary(b.t, "github.com/plx-run/plx/examples/mlp")
	b.carries(10*400_000*4*2, func() {
		b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--nic", "eth1", mlp, "--niters=10", "--train-size=640")
	})
}

func testInterfaceMistakes(b *bench) {
	h1, h2 := b.Hosts[0], b.Hosts[1]
	never := b.script("never", "echo a task ran")
	fails := func(code int, args []string, texts ...string) {
		b.t.Helper()
		res := b.want(code, append(append([]string{"launch"}, args...), never)...)
		contains(b.t, res.stderr, texts...)
		if res.stdout != "" {
			b.t.Errorf("plx launch %q printed %q", args, res.stdout)
		}
	}
	all := []string{"--hosts", b.ResourceFile("h1: cpu", "h2: cpu")}
	fails(125, append(all, "--nic", "ib0"), "host h1: --nic: no network interface ib0: the host has eth0 ("+h1.Addr, "eth1 ("+h1.SecondAddr, "lo (127.0.0.1",
		"host h2: --nic: no network interface ib0", "hint: --nic NAME")
	fails(125, append(all, "--nic", "lo"), "hosts h[1-2]: --nic: network interface lo reaches this host only")
	fails(125, []string{"--host", "h1: cpu", "--host", "h2: cpu nic=eth1 addr=" + h2.Addr}, "host h2: --host:2: addr="+h2.Addr+" is no address of its network interface")
	fails(2, []string{"--host", "h1: cpu", "--host", "h2: cpu RANK=1"}, "--host:2: RANK cannot be set: it differs for every task", "hint: leave it out")
	fails(2, append(all, "--nic", "eth1@if5"), `--nic: "eth1@if5" is no name of a network interface`)
	b.inside(h2, "ip", "link", "set", "eth1", "down")
	fails(125, append(all, "--nic", "eth1"), "host h2: --nic: network interface eth1 is down: the host has eth0 ("+h2.Addr)
	b.inside(h2, "ip", "link", "set", "eth1", "up")
	b.inside(h2, "ip", "addr", "flush", "dev", "eth1")
	file := b.ResourceFile("h1: cpu nic=eth1", "h2: cpu nic=eth1")
	fails(125, []string{"--hosts", file}, "host h2: "+file+":2: network interface eth1 has no address that other hosts can dial")
}

// If one host has only IPv6 addresses on the network, all hosts use IPv6.
func testOnlyIPv6(b *bench) {
	h1, h2 := b.Hosts[0], b.Hosts[1]
	if h2.SecondAddr6 == "" {
		skip(b.t, "needs IPv6")
	}
	b.inside(h2, "ip", "addr", "flush", "dev", "eth1")
	b.inside(h2, "ip", "addr", "add", h2.SecondAddr6+"/64", "dev", "eth1", "nodad")
	out := b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--nic", "eth1", b.script("show", "env")).stdout
	got := variables(lines(out, "worker:1"))
	if got["MASTER_ADDR"] != h1.SecondAddr6 {
		b.t.Errorf("MASTER_ADDR=%q, want %q", got["MASTER_ADDR"], h1.SecondAddr6)
	}
	contains(b.t, got["PLX_CLUSTER"], `"[`+h1.SecondAddr6+"]:", `"[`+h2.SecondAddr6+"]:")
}
