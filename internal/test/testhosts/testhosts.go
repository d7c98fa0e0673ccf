// Package testhosts provides tests with real SSH hosts on one machine.
//
// A host is a set of Linux namespaces with a real OpenSSH server as process 1.
// It has its own address, process table, host name, home directory, /tmp,
// /etc/ssh and /usr/local/bin. It can lose its power like a machine: all
// processes die at once. All hosts of a cluster are connected to one bridge,
// on which the test's machine has an address too.
//
//	cluster := testhosts.Start(t, testhosts.Options{Hosts: 3, GPUs: []int{4, 2}})
//	t.Setenv("HOME", cluster.Home)
//	cluster.Hosts[0].Cut()
//
// The package needs Linux, root and the packages openssh-server,
// openssh-client, iproute2 and util-linux. If one is missing, the test is
// skipped with the reason; with CI=true it fails.
//
// The package leaves everything else on the machine alone. It kills processes
// by recorded IDs, never by name. It uses only addresses of 10.77.0.0/16 that
// no other interface has. It changes nothing outside its own folder, bridges
// and namespaces. The hosts share the machine's kernel, CPUs and the rest of
// its file system. They can reach only each other and the machine.
package testhosts

import (
	"errors"
)

// Options describes a cluster. Only Hosts must be set.
type Options struct {
	// Hosts is the number of hosts, 1 to 200. Their names are h1, h2, and so on.
	Hosts int
	// GPUs is the number of fake GPUs of each host, in order. Hosts without an
	// entry have no GPU and no nvidia-smi.
	GPUs []int
	// SharedHome gives all hosts the same home directory, as a network file
	// system does.
	SharedHome bool
	// NoisyRC gives every home directory a .bashrc that prints to stdout and
	// stderr.
	NoisyRC bool
	// ExternalSFTP uses the program sftp-server instead of the SFTP server
	// inside sshd. sshd starts sftp-server through bash, so a .bashrc that
	// prints disturbs the SFTP protocol.
	ExternalSFTP bool
	// HostKeys are the types of host keys: ed25519, ecdsa, rsa. Empty means
	// only ed25519.
	HostKeys []string
	// Second gives every host a second interface, eth1, on a separate network.
	// Cut, Mute, Deafen and Shape affect only eth0.
	Second bool
	// Rate limits every host's link from the start, as [Host.Shape] does.
	// Empty means no limit.
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
