package trainer

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/plx-run/plx/trainer/autotune/cost"
	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/checkpoint/weights"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/collective"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
)

// Timeouts of the collectives and the checkpoint store. groupStart is the time
// within which all workers must connect. A connected worker that sends nothing
// for groupSilence counts as lost. Config.StartTimeout and Config.PeerTimeout
// are the same limits for training.
const (
	groupStart   = 2 * time.Minute
	groupSilence = 30 * time.Second
)

// network holds what a task needs to communicate with the other tasks of the
// job: addresses, keys, listener, collectives and checkpoint store.
type network struct {
	contract cluster.Contract
	key      cluster.Key // authenticates this task to other tasks; derived from the job's secret
	log      *printer
	listener *peers.Listener   // accepts connections of other tasks; nil if plx did not launch the program, because then there are none
	group    *collective.Group // runs collectives among all workers
	store    *store.Store      // checkpoint store; nil without --ckpt-dir
	source   *weights.Source   // checkpoint that OpenCheckpoint reads; nil in a program that trains
}

// newNetwork reads the job's secret from the file that contract c names. It
// opens no connections.
func newNetwork(c cluster.Contract, log *printer) (*network, error) {
	n := &network{contract: c, log: log}
	if c.SecretFile == "" {
		return n, nil
	}
	secret, err := c.Secret()
	if err != nil {
		return nil, err
	}
	n.key = cluster.PeerKey(secret, c.Generation)
	return n, nil
}

// peers returns the settings for connections to other tasks: this task's name,
// key and TLS settings.
func (n *network) peers() peers.Config {
	spec := n.contract.Cluster
	return peers.Config{
		Self: n.contract.Task, Key: n.key, TLS: n.contract.TLS, Generation: n.contract.Generation,
		Workers: max(1, len(spec.Worker)), Servers: len(spec.PS), Logf: n.log.Logf,
	}
}

// listen begins to accept connections from other tasks. It uses the socket
// that plx's agent has opened, or else opens one at this task's address.
func (n *network) listen() (err error) {
	var ln net.Listener
	if n.contract.ListenFD > 0 {
		ln, err = n.contract.Listener()
	} else {
		ln, err = net.Listen("tcp", n.contract.Cluster.Addr(n.contract.Task))
	}
	if err == nil {
		n.listener = peers.Listen(ln, n.peers())
	}
	return err
}

// openGroup creates the group for collectives. The group connects to the other
// workers at the first collective.
func (n *network) openGroup() {
	addrs := n.contract.Cluster.Worker
	if len(addrs) == 0 {
		addrs = []string{"alone"}
	}
	n.group = collective.New(collective.Config{
		Peers: n.peers(), Listener: n.listener, Rank: n.contract.Task.Index, Addrs: addrs,
		Start: groupStart, Silence: groupSilence,
	})
}

// openStore opens the checkpoint store, which consists of the checkpoint
// folders of all tasks. dir is this task's folder. If dir is empty, the job
// has no checkpoints and openStore does nothing. keep is the number of
// checkpoints to keep.
func (n *network) openStore(ctx context.Context, dir string, keep int) (err error) {
	if dir == "" {
		return nil
	}
	path := dir
	if !filepath.IsAbs(dir) {
		path = filepath.Join(n.contract.Checkpoints, dir) // if plx did not launch the program, Checkpoints is empty and path is relative to the working directory
	}
	n.store, err = store.Open(ctx, store.Config{
		Peers: n.peers(), Listener: n.listener, Cluster: n.contract.Cluster, Dir: path, Keep: keep,
		Start: groupStart, Silence: groupSilence, Job: n.contract.Job, Logf: n.log.Logf,
	})
	if err != nil {
		return fmt.Errorf("--ckpt-dir %s: %w", dir, err)
	}
	return nil
}

// leaveStore blocks until no other task needs a file from this task's
// checkpoint folder.
func (n *network) leaveStore(ctx context.Context) {
	if n.store != nil {
		n.store.Wait(ctx) // an error is ignored, because the store has logged it
	}
}

// checkpoints returns the checkpoint store for the parts of variables that
// this task holds. The task restores them from it and saves them to it.
// checkpoints returns nil without --ckpt-dir.
func (n *network) checkpoints() transition.Checkpoints {
	switch {
	case n.source != nil:
		return n.source
	case n.store == nil:
		return nil
	}
	return n.store
}

// close closes the checkpoint store, the group and the listener.
func (n *network) close() {
	if n.store != nil {
		n.store.Close() // an error is ignored, because the store has logged it
	}
	n.group.Close() // errors are ignored, because the other tasks notice the closed connections
	if n.listener != nil {
		n.listener.Close() // errors are ignored, because the other tasks notice the closed connections
	}
}

// machines returns the host of each worker and each server, taken from their
// network addresses.
func (n *network) machines() (c cost.Cluster) {
	spec := n.contract.Cluster
	for i := range n.contract.WorldSize {
		c.Workers = append(c.Workers, hostOf(spec.Addr(cluster.Task{Role: cluster.Worker, Index: i})))
	}
	for _, addr := range spec.PS {
		c.Servers = append(c.Servers, hostOf(addr))
	}
	return c
}

// hostOf returns the host of a network address. If addr has no port, it
// returns addr.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// workersByHost returns the ranks of the workers of each host, one range per host.
// Workers of one host can add up their gradients before they send them. If no
// host has several workers, workersByHost returns nil.
func (n *network) workersByHost() (all []layout.Range) {
	hosts, from := n.machines().Workers, 0
	for rank, host := range hosts {
		if last := rank + 1; last == len(hosts) || hosts[last] != host {
			all = append(all, layout.Range{Lo: from, Hi: last})
			from = last
		}
	}
	if len(all) == len(hosts) {
		return nil
	}
	return all
}
