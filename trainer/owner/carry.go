package owner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// movePurpose is what owners come to each other for, to bring rows.
//
// The old owner opens the connection. For each range of rows, in order, it
// sends move frames with rows by ascending index, and a moved frame with the
// updates that the piece has had. The new owner's answer to all of it is one
// moved frame.
const movePurpose = "move"

// send brings an owner what is to be there.
func (m *moving) send(ctx context.Context, to int, list []transfer) error {
	s := m.server
	task := m.d.Owners[to]
	dialling, cancel := context.WithTimeoutCause(ctx, m.d.silence(), fmt.Errorf("not reached within %v", m.d.silence()))
	defer cancel()
	raw, err := peers.Dial(dialling, s.config, task, s.cluster.Addr(task), movePurpose)
	if err != nil {
		return err
	}
	conn := wire.NewConn(raw, s.config.Generation, m.d.silence())
	conn.SetEpoch(m.epoch)
	answered := make(chan error, 1)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		err := m.hear(conn, to)
		if err != nil {
			conn.Close() // ends sendAll
		}
		answered <- err
	})
	untie := s.tie(conn)
	defer func() {
		untie()
		conn.Close() // nothing is left to be lost
		hearing.Wait()
	}()
	sent := m.sendAll(conn, list)
	if sent != nil { // the owner's own words say more, when they come
		hangUp := time.AfterFunc(time.Second, func() { conn.Close() })
		defer hangUp.Stop()
	}
	if err := <-answered; err != nil { // ends with the connection, which ends with the training
		return err
	}
	if sent != nil {
		return m.blame(to, sent)
	}
	return nil
}

func (m *moving) sendAll(conn *wire.Conn, list []transfer) error {
	var frame []byte
	for _, t := range list {
		from := m.from(t)
		for row := int64(t.lo); ; {
			if frame, row = from.export(frame[:0], row, int64(t.hi)); len(frame) == 0 {
				break
			}
			if err := conn.Send(wire.Frame{Header: t.header(wire.Move, m.step), Payload: frame}); err != nil {
				return err
			}
		}
		if err := conn.Send(wire.Frame{Header: t.header(wire.Moved, from.count())}); err != nil {
			return err
		}
	}
	return nil
}

// hear waits for the new owner's answer.
func (m *moving) hear(conn *wire.Conn, to int) error {
	h, err := conn.Next()
	switch {
	case err != nil:
	case h.Kind == wire.Error:
		err = told(conn, h)
	case h.Kind != wire.Moved || h.Length != 0 || h.Step != m.step:
		err = fmt.Errorf("unexpected %s frame of step %d while variables move", h.Kind, h.Step)
	default:
		return nil
	}
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return m.blame(to, err)
}

// told is what an error frame says.
func told(conn *wire.Conn, h wire.Header) error {
	told, err := peers.ReadReport(conn, h)
	if err != nil {
		return err
	}
	return told
}

// tie tells the other end why the training ended, should it, and hangs up in
// bounded time. The caller goes on reading until then.
func (s *server) tie(conn *wire.Conn) (untie func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-done:
			return
		case <-s.ended:
		}
		hangUp := time.AfterFunc(farewell, func() { conn.Close() })
		defer hangUp.Stop()
		if s.err == nil || conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(s.err)}) != nil {
			conn.Close() // there is nothing to say, or nobody
			return
		}
		<-done
	})
	return func() {
		close(done)
		waiting.Wait()
	}
}

// receiveRows takes what another owner brings.
func (s *server) receiveRows(from peers.Peer) {
	conn := wire.NewConn(from.Conn, s.config.Generation, firstSilence)
	defer conn.Close() // all was said
	defer s.tie(conn)()
	m, list, err := s.expect(from, conn)
	if err != nil { // whoever it is, the training does without
		s.logf("refused rows from %s: %v", from.Task, err)
		conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(err)})
		hangUp := time.AfterFunc(farewell, func() { conn.Close() })
		defer hangUp.Stop()
		conn.Drain()
		return
	}
	if err := m.receive(conn, list); err != nil {
		var known *peers.PeerError
		if !errors.As(err, &known) {
			err = &peers.PeerError{Task: from.Task, Addr: from.Addr, Err: peers.Lost(err)}
		}
		s.end(err)
	}
	conn.Drain() // until the other end, which has the answer, hangs up
}

// expect lets in an owner that is to bring something. What it is to bring is
// known once all workers have asked for it, which they may just be doing.
func (s *server) expect(from peers.Peer, conn *wire.Conn) (*moving, []transfer, error) {
	s.mu.Lock()
	if s.engine == nil || !s.opened || s.closing {
		s.mu.Unlock()
		return nil, nil, errors.New("nothing is to move here")
	}
	d, m := s.engine.d, s.underWay()
	s.mu.Unlock()
	owner := d.ownerIndex(from.Task)
	if owner < 0 || !d.Movable {
		return nil, nil, errors.New("it has no say in what moves here")
	}
	conn.SetSilence(d.silence())
	timer := time.NewTimer(d.silence())
	defer timer.Stop()
	select {
	case <-m.ready:
	case <-s.ended:
		return nil, nil, errEnded
	case <-timer.C:
		return nil, nil, fmt.Errorf("no worker asked within %v for anything to move here", d.silence())
	}
	if list := m.claim(owner); list != nil {
		return m, list, nil
	}
	return nil, nil, errors.New("nothing is to come from it, or it came before")
}

// receive takes the rows of transfers, each row once, and answers.
func (m *moving) receive(conn *wire.Conn, list []transfer) error {
	var frame []byte
	for _, t := range list {
		for row := int64(t.lo); ; {
			h, err := m.nextOf(t, conn)
			if err != nil {
				return err
			}
			to := m.to(t)
			if h.Kind == wire.Moved {
				if err := to.counts(h.Step); err != nil {
					return err
				}
				break
			}
			if most := to.maxFrame(row, int64(t.hi)); h.Length > most {
				return fmt.Errorf("%d bytes of rows of variable %d, want at most %d", h.Length, t.new.Variable, most)
			}
			frame = sized(frame, int(h.Length))
			if err := conn.Payload(frame); err != nil {
				return err
			}
			if row, err = to.accept(frame, row, int64(t.hi)); err != nil {
				return fmt.Errorf("rows of variable %d: %w", t.new.Variable, err)
			}
		}
	}
	if err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Moved, Step: m.step, Epoch: m.epoch}}); err != nil {
		return err
	}
	m.brought()
	return nil
}

// nextOf returns the next frame, which must be of a transfer.
func (m *moving) nextOf(t transfer, conn *wire.Conn) (wire.Header, error) {
	h, err := conn.Next()
	switch {
	case err != nil:
		return h, err
	case h.Kind == wire.Error:
		return h, told(conn, h)
	case h.Epoch == m.epoch && t.isOf(h) && (h.Kind == wire.Move && h.Step == m.step || h.Kind == wire.Moved && h.Length == 0):
		return h, nil
	}
	return h, fmt.Errorf("unexpected %s frame for variable %d from row %d in epoch %d, want rows of variable %d from row %d in epoch %d",
		h.Kind, h.Variable, h.Offset, h.Epoch, t.new.Variable, t.lo, m.epoch)
}
