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

// Workers wait for one another in a collective for groupStart, and one may be
// silent for groupSilence. StartTimeout and PeerTimeout are the same for training.
const (
	groupStart   = 2 * time.Minute
	groupSilence = 30 * time.Second
)

// network is what a task shares with the other tasks of the job.
type network struct {
	contract cluster.Contract
	key      cluster.Key // proves to others that this task is of the job
	log      *printer
	listener *peers.Listener   // gets other tasks' connections; nil means that no task is to connect
	group    *collective.Group // collectives among all workers
	store    *store.Store      // nil means that there are no checkpoints
	source   *weights.Source   // the checkpoint of a model that is evaluated and not trained; nil otherwise
}

// newNetwork reads the job's secret. It connects to nobody.
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

// peers describes this task to the others.
func (n *network) peers() peers.Config {
	spec := n.contract.Cluster
	return peers.Config{
		Self: n.contract.Task, Key: n.key, TLS: n.contract.TLS, Generation: n.contract.Generation,
		Workers: max(1, len(spec.Worker)), Servers: len(spec.PS), Logf: n.log.Logf,
	}
}

// listen accepts connections of the other tasks, on the socket that the launcher
// has opened or at the address that it gave.
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

// openGroup prepares the collectives. Connections are made when one is used.
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

// openStore joins the checkpoint folders of all tasks; dir is that of this one.
// Without one there are no checkpoints.
func (n *network) openStore(ctx context.Context, dir string, keep int) (err error) {
	if dir == "" {
		return nil
	}
	path := dir
	if !filepath.IsAbs(dir) {
		path = filepath.Join(n.contract.Checkpoints, dir) // without a launcher, below the working folder
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

// leaveStore waits until no other task needs a file of this one's folder.
func (n *network) leaveStore(ctx context.Context) {
	if n.store != nil {
		n.store.Wait(ctx) // the store has logged what failed
	}
}

// checkpoints is where this task's shards are saved to and restored from; nil:
// there is no store.
func (n *network) checkpoints() transition.Checkpoints {
	switch {
	case n.source != nil:
		return n.source
	case n.store == nil:
		return nil
	}
	return n.store
}

// close ends what was opened to other tasks.
func (n *network) close() {
	if n.store != nil {
		n.store.Close() // the store has logged what it could not write
	}
	n.group.Close() // others notice the closed connection
	if n.listener != nil {
		n.listener.Close() // others notice the closed connection
	}
}

// machines names the host of each worker and server by its data address.
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

// hostOf is the host of a data address, or all of an address without a port.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// together are the ranks of the workers of each host, nil if no host has several:
// then nobody adds gradients for others.
func (n *network) together() (all []layout.Range) {
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
