package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// prepare opens the sockets of a generation. What an earlier generation left
// is ended first. Asked again for the same generation, it answers the same.
func (s *supervisor) prepare(m protocol.Prepare) {
	if s.preparing || s.ending != nil {
		return // the answer is coming, or none is wanted
	}
	if s.prepared != nil && s.prepared.Error == "" && s.prepared.Generation == m.Generation && s.state.Phase == protocol.Ready {
		s.tell(protocol.Message{Prepared: s.prepared})
		return
	}
	for _, t := range s.tasks {
		if !t.settled() {
			s.tell(protocol.Message{Prepared: &protocol.Prepared{Generation: m.Generation,
				Error: fmt.Sprintf("%s of generation %d is still running", t.Task, t.generation)}})
			return
		}
	}
	s.preparing = true
	old := s.outputs()
	for _, t := range s.tasks {
		t.closeSockets()
	}
	s.work.Go(func() {
		_, left, err := s.kids.clear(killTime)
		err = errors.Join(err, closeOutputs(old))
		tasks, answer := s.openSockets(m.Generation)
		s.do(func() {
			s.killed("the generation before", left, err)
			s.ready(tasks, answer)
		})
	})
}

func (s *supervisor) ready(tasks map[cluster.Task]*task, answer *protocol.Prepared) {
	s.preparing = false
	s.prepared, s.tasks, s.state.Generation = answer, tasks, answer.Generation
	if s.ending == nil && answer.Error == "" {
		s.enter(protocol.Ready)
	}
	s.tell(protocol.Message{Prepared: answer})
	s.progress() // an end may have waited for this
}

// openSockets makes the tasks of a generation, each with its two ports.
func (s *supervisor) openSockets(generation int) (map[cluster.Task]*task, *protocol.Prepared) {
	answer := &protocol.Prepared{Generation: generation, Open: map[cluster.Task]string{}, Reserved: map[cluster.Task]string{}}
	tasks := map[cluster.Task]*task{}
	err := s.noData
	for _, spec := range s.spec.Tasks {
		if err != nil {
			break
		}
		t := &task{TaskSpec: spec, generation: generation}
		tasks[spec.Task] = t
		if err = t.openSockets(s.place()); err == nil {
			answer.Open[spec.Task], answer.Reserved[spec.Task] = t.open.addr, t.reserved.addr
		}
	}
	if err == nil {
		return tasks, answer
	}
	for _, t := range tasks {
		t.closeSockets()
	}
	return nil, &protocol.Prepared{Generation: generation, Error: err.Error()}
}

func (t *task) openSockets(p place) (err error) {
	if t.open, err = p.open(true); err != nil {
		return err
	}
	t.reserved, err = p.open(false)
	return err
}

func (s *supervisor) place() place {
	return place{addr: s.spec.DataAddr, low: s.spec.PortLow, high: s.spec.PortHigh}
}

// Bounds of a check: for one peer, and how many at a time.
const (
	checkTime = 10 * time.Second
	checkMany = 64
)

// check dials the agents of other hosts and answers the conductor that asked.
func (s *supervisor) check(l *link, m protocol.Check) {
	key := cluster.PeerKey(s.spec.Secret, 0)
	self := agentName(s.spec.HostIndex)
	s.work.Go(func() {
		var mu sync.Mutex
		var wg sync.WaitGroup
		answer := &protocol.Checked{}
		slots := make(chan struct{}, checkMany)
		for _, peer := range m.Peers {
			if peer.Index == s.spec.HostIndex {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := reach(key, self, peer); err != nil {
					mu.Lock()
					defer mu.Unlock()
					answer.Failures = append(answer.Failures, protocol.Unreached{Peer: peer, Cause: err.Error()})
				}
			})
		}
		wg.Wait()
		s.do(func() { l.send(protocol.Message{Checked: answer}) })
	})
}

func reach(key cluster.Key, self string, peer protocol.Peer) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	conn, err := dialPeer(ctx, key, self, peer)
	if err != nil {
		return err
	}
	return conn.Close()
}

// dialPeer connects to the agent of another host and proves the job's secret.
func dialPeer(ctx context.Context, key cluster.Key, self string, peer protocol.Peer) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", peer.Addr)
	if err != nil {
		return nil, err
	}
	if err := cluster.Dial(ctx, conn, key, self, agentName(peer.Index)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// agentName is what an agent proves to be.
func agentName(host int) string { return fmt.Sprintf("agent:%d", host) }
