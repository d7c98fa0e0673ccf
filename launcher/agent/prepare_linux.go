package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// prepare ends what is left of the generation before and opens the sockets of
// the next. Asked again for the same one, it answers the same; what was over
// does not come back.
func (s *supervisor) prepare(m protocol.Prepare) {
	switch {
	case s.ending != nil:
		return // no answer is wanted
	case m.Generation < s.state.Least:
		s.tell(protocol.Message{Prepared: &protocol.Prepared{Generation: m.Generation,
			Error: fmt.Sprintf("generation %d is over, the next one here is %d", m.Generation, s.state.Least)}})
		return
	case s.preparing:
		s.next = &m
		return
	case s.state.Phase == protocol.Ready && s.prepared.Generation == m.Generation:
		s.tell(protocol.Message{Prepared: s.prepared})
		return
	}
	s.preparing, s.layout, s.state.Least = true, m, m.Generation
	s.enter(protocol.Idle) // what was prepared before is so no more
	for _, t := range s.tasks {
		t.killing = t.running()
	}
	heirs := s.heirs(m.Tasks)
	running, outs, spared := s.unneeded(heirs)
	s.work.Go(func() {
		_, left, err := s.kids.clear(killTime, spared...)
		s.awaitExits(running)
		err = errors.Join(err, closeOutputs(outs))
		stuck := make(chan string, 1)
		s.do(func() {
			s.killed("the generation before", left, err)
			stuck <- s.retire()
		})
		tasks, answer := s.openSockets(m, stuck)
		for name, t := range tasks {
			t.heir = heirs[name]
		}
		s.do(func() { s.ready(tasks, answer) })
	})
}

// unneeded tells what a next generation clears away: how many tasks still have
// a process, and outputs that nobody is to write to any more. The processes of
// heirs are spared.
func (s *supervisor) unneeded(heirs map[cluster.Task]*body) (running int, outs []*output, spared []int) {
	waiting := slices.Clone(s.kept)
	for _, b := range heirs {
		spared = append(spared, b.child.pid)
		waiting = slices.DeleteFunc(waiting, func(w *body) bool { return w == b })
	}
	for _, t := range s.tasks {
		if t.body != nil {
			running++
			outs = append(outs, t.outs[:]...)
		}
	}
	return running, append(outs, outputsOf(waiting)...), spared
}

// retire gives up the ports of tasks that have ended. It says which has not.
func (s *supervisor) retire() string {
	for _, t := range s.tasks {
		if !t.settled() {
			return fmt.Sprintf("%s of generation %d did not end when killed", t.Task, t.generation)
		}
		t.closeSockets()
	}
	return ""
}

func (s *supervisor) ready(tasks map[cluster.Task]*task, answer *protocol.Prepared) {
	s.preparing = false
	if answer.Error == "" {
		s.prepared, s.tasks, s.state.Generation = answer, tasks, answer.Generation
	}
	if s.ending == nil && answer.Error == "" {
		s.enter(protocol.Ready)
	}
	s.tell(protocol.Message{Prepared: answer})
	s.progress() // an end may have waited for this
	if next := s.next; next != nil {
		s.next = nil
		s.prepare(*next)
	}
}

// openSockets makes the tasks of a generation, each with its folder and two
// ports. stuck delivers what is in the way, "" for nothing.
func (s *supervisor) openSockets(m protocol.Prepare, stuck <-chan string) (map[cluster.Task]*task, *protocol.Prepared) {
	answer := &protocol.Prepared{Generation: m.Generation, Open: map[cluster.Task]string{}, Reserved: map[cluster.Task]string{}}
	tasks := map[cluster.Task]*task{}
	err := s.mayOpen(m, stuck)
	for _, spec := range m.Tasks {
		if err != nil {
			break
		}
		t := &task{TaskSpec: spec, generation: m.Generation}
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
	return nil, &protocol.Prepared{Generation: m.Generation, Error: err.Error()}
}

// mayOpen makes sure of what sockets are of no use without.
func (s *supervisor) mayOpen(m protocol.Prepare, stuck <-chan string) error {
	select {
	case why := <-stuck:
		if why != "" {
			return errors.New(why)
		}
	case <-s.quit:
		return errors.New("the agent has ended")
	}
	if len(m.Tasks) > 0 && s.noData != nil {
		return s.noData
	}
	return s.folder.furnish(context.Background(), m.Tasks, s.spec.Archives)
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
	// The kernel asks three times, a second apart.
	neighbourTime  = 4 * time.Second
	neighbourPause = 100 * time.Millisecond
)

// check dials the agents of other hosts and answers the conductor that asked.
func (s *supervisor) check(l *link, m protocol.Check) {
	key := cluster.PeerKey(s.spec.Secret, 0)
	self := agentName(s.spec.HostIndex)
	s.work.Go(func() {
		var mu sync.Mutex
		var wg sync.WaitGroup
		answer := &protocol.Checked{Generation: m.Generation}
		slots := make(chan struct{}, checkMany)
		for _, peer := range m.Peers {
			if peer.Index == s.spec.HostIndex {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				dial := func(ctx context.Context) (net.Conn, error) { return dialPeer(ctx, key, self, peer) }
				if err := reach(dial); err != nil {
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

// reach makes sure that a peer answers. One that has been silent is unreachable
// for the kernel until it has asked for its address again, as right after a
// network was mended: that is not believed at once.
func reach(dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
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
