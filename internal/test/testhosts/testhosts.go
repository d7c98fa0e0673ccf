// Package testhosts gives tests real SSH hosts on one machine.
//
// A host is a set of Linux namespaces with a real OpenSSH server as its
// process 1: it has its own address, process table, host name, home, /tmp,
// /etc/ssh and /usr/local/bin, and dies as a machine dies, at once and whole.
// All hosts of a cluster hang on one bridge, on which the test's own machine
// has an address too.
//
//	cluster := testhosts.Start(t, testhosts.Options{Hosts: 3, GPUs: []int{4, 2}})
//	t.Setenv("HOME", cluster.Home)
//	cluster.Hosts[0].Cut()
//
// It needs Linux, root and the packages openssh-server, openssh-client,
// iproute2 and util-linux. Where one is missing the test is skipped with the
// reason, or fails when the environment says CI=true.
//
// It refuses to touch what it did not make: it ends processes by the ids that
// it recorded, never by name, uses addresses of 10.77.0.0/16 that nobody else
// has, and changes nothing outside its own folder, its bridge and its
// namespaces. The hosts share the machine's kernel, cores and remaining file
// system; they have no route to anywhere but one another and the machine.
package testhosts

import (
	"errors"
)

// Options describes a cluster. Only Hosts must be set.
type Options struct {
	// Hosts is the number of hosts, 1 to 200. Their names are h1, h2, and so on.
	Hosts int
	// GPUs is the number of fake GPUs of each host, in order. Hosts beyond the end of
	// the list have no GPU and no nvidia-smi.
	GPUs []int
	// SharedHome makes all hosts have one home, as with a network file system.
	SharedHome bool
	// NoisyRC gives every home a .bashrc that prints to both streams.
	NoisyRC bool
	// ExternalSFTP serves sftp by the sftp-server program, which bash starts
	// and a noisy rc file therefore breaks, not inside sshd.
	ExternalSFTP bool
	// HostKeys are the types of host keys: ed25519, ecdsa, rsa. Empty: ed25519 alone.
	HostKeys []string
	// Second gives every host a second interface, eth1, on a network of its own. Cut,
	// Shape and their like concern eth0 only.
	Second bool
	// Rate limits every host's link from the start, as [Host.Shape] does. Empty: no
	// limit.
	Rate string
}

func (o Options) validate() error {
	if o.Hosts < 1 || o.Hosts > 200 {
		return errors.New("testhosts: Hosts must be 1 to 200")
	}
	if len(o.GPUs) > o.Hosts {
		return errors.New("testhosts: more entries in GPUs than hosts")
	}
	return nil
}
