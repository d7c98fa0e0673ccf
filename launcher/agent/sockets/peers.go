//go:build linux

package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Identity is what an agent proves to the other agents of its job.
type Identity struct {
	Secret    []byte
	HostIndex int
}

func (id Identity) key() cluster.Key { return cluster.PeerKey(id.Secret, 0) }

// agentName is the name by which agents know one another.
func agentName(host int) string { return fmt.Sprintf("agent:%d", host) }

// Dial connects to the agent of another host. Both prove the job's secret.
func (id Identity) Dial(ctx context.Context, peer protocol.Peer) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", peer.Addr)
	if err != nil {
		return nil, err
	}
	if err := cluster.Dial(ctx, conn, id.key(), agentName(id.HostIndex), agentName(peer.Index)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Bounds of reach.
const (
	reachTime = 10 * time.Second
	// The kernel asks three times for a neighbour's address, a second apart.
	neighbourTime  = 4 * time.Second
	neighbourPause = 100 * time.Millisecond
)

// reach makes sure, in bounded time, that the agent of another host answers.
func (id Identity) reach(peer protocol.Peer) error {
	return untilReached(func(ctx context.Context) (net.Conn, error) { return id.Dial(ctx, peer) })
}

// reachMany is how many agents ReachAll dials at a time.
const reachMany = 64

// ReachAll returns which of the other agents do not answer.
func (id Identity) ReachAll(peers []protocol.Peer) []protocol.Unreached {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failures []protocol.Unreached
	slots := make(chan struct{}, reachMany)
	for _, peer := range peers {
		if peer.Index == id.HostIndex {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := id.reach(peer); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, protocol.Unreached{Peer: peer, Cause: err.Error()})
			}
		})
	}
	wg.Wait()
	return failures
}

// untilReached dials again for a while if the kernel reports that there is no route to
// the host. It does so for a host that was silent until it has found the host's
// hardware address again, as right after a network was mended.
func untilReached(dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), reachTime)
	defer cancel()
	for began := time.Now(); ; {
		conn, err := dial(ctx)
		if err == nil {
			return conn.Close()
		}
		if !errors.Is(err, unix.EHOSTUNREACH) || time.Since(began) > neighbourTime {
			return err
		}
		time.Sleep(neighbourPause)
	}
}

// Greeting bounds the first messages of a connection.
const Greeting = 10 * time.Second

// Open opens the agents' protocol on a connection, in bounded time. On an error it
// closes the connection.
func Open(ctx context.Context, raw net.Conn) (*protocol.Conn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	raw.SetDeadline(time.Now().Add(Greeting)) // a closed one fails at its first use
	conn, err := protocol.Open(raw)
	if err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		return nil, errors.Join(ctx.Err(), conn.Close())
	}
	return conn, raw.SetDeadline(time.Time{})
}
