package transition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Purpose is the purpose of connections on which a holder sends rows to
// another.
//
// The old holder of the rows opens the connection. For each range of rows, in
// order, it sends move frames with rows by ascending index. A moved frame with
// the number of updates of the piece ends the range. After all ranges the new
// holder answers with one moved frame.
const Purpose = "move"

const (
	farewell     = 2 * time.Second // bounds how long a peer may take to hang up
	firstSilence = time.Minute     // how long a holder may be silent before the declaration sets the limit
)

// send sends a holder the rows of a list.
func (m *Repartition) send(ctx context.Context, to int, list []layout.Transfer) error {
	task := m.d.Holders[to]
	dialling, cancel := context.WithTimeoutCause(ctx, m.d.Silence(), fmt.Errorf("not reached within %v", m.d.Silence()))
	defer cancel()
	session, err := peers.Open(dialling, m.config.Peers, task, m.config.Cluster.Addr(task), Purpose, m.d.Silence())
	if err != nil {
		return err
	}
	session.SetEpoch(m.epoch)
	untie := tie(m.training, session)
	answered := make(chan error, 1)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		defer session.Drain()
		err := m.awaitAnswer(session)
		if err != nil {
			session.Close() // ends sendAll
		}
		answered <- err
	})
	defer func() {
		session.Close() // its error no longer matters
		untie()
		hearing.Wait()
	}()
	sent := m.sendAll(session, list)
	if sent != nil { // the holder's own report says more, if it comes
		defer time.AfterFunc(time.Second, func() { session.Close() }).Stop()
	}
	if err := <-answered; err != nil { // ends with the connection, which ends with the training
		return err
	}
	if sent != nil {
		return session.Blame(sent)
	}
	return nil
}

func (m *Repartition) sendAll(session *peers.Session, list []layout.Transfer) error {
	var frame []byte
	for _, t := range list {
		from := m.from(t)
		for row := int64(t.Lo); ; {
			if frame, row = from.Export(frame[:0], row, int64(t.Hi)); len(frame) == 0 {
				break
			}
			if err := session.Send(wire.Frame{Header: headerOf(t, wire.Move, m.step), Payload: frame}); err != nil {
				return err
			}
		}
		if err := session.Send(wire.Frame{Header: headerOf(t, wire.Moved, from.Updates())}); err != nil {
			return err
		}
	}
	return nil
}

// awaitAnswer waits for the answer of the new holder.
func (m *Repartition) awaitAnswer(session *peers.Session) error {
	h, err := session.Next()
	if err == nil && (h.Kind != wire.Moved || h.Length != 0 || h.Step != m.step) {
		err = fmt.Errorf("unexpected %s frame of step %d while variables move", h.Kind, h.Step)
	}
	if err != nil {
		return session.Blame(err)
	}
	return nil
}

// tie closes a session, in bounded time, when the training ends. If the
// training failed, tie first tells the other end why. The caller continues to
// read until then.
func tie(training context.Context, session *peers.Session) (untie func()) {
	told := make(chan struct{})
	stop := context.AfterFunc(training, func() {
		defer close(told)
		if why := context.Cause(training); why != ErrEnded {
			session.Tell(why, farewell)
		}
		session.Close() // its error no longer matters
	})
	return func() {
		if !stop() {
			<-told
		}
	}
}

// Serve receives the rows of another holder, until that holder hangs up. d is
// the declaration with the current map. The error says why Serve refused the
// holder. A later failure ends the training.
func (m *Repartition) Serve(from peers.Peer, d *layout.Declaration) error {
	session := peers.NewSession(from, m.config.Peers.Generation, firstSilence)
	defer session.Close() // its error no longer matters
	defer tie(m.training, session)()
	defer session.Drain() // until the other end has the answer and hangs up
	list, err := m.expect(d, session)
	if err != nil {
		session.Refuse(err, farewell)
		return err
	}
	if err := m.receive(session, list); err != nil {
		m.host.Fail(session.Blame(err))
	}
	return nil
}

// Refuse tells a holder why this task accepts no rows.
func Refuse(from peers.Peer, c Config, why error) {
	peers.NewSession(from, c.Peers.Generation, firstSilence).Refuse(why, farewell)
}

// expect returns the rows that the other holder will send, or an error if it
// must send none. It waits until all workers have requested the move. Their
// requests may reach the other holder earlier than this one.
func (m *Repartition) expect(d *layout.Declaration, session *peers.Session) ([]layout.Transfer, error) {
	holder := d.HolderIndex(session.Task)
	if holder < 0 || !d.Movable {
		return nil, errors.New("it is no holder of movable variables")
	}
	session.SetSilence(d.Silence())
	timer := time.NewTimer(d.Silence())
	defer timer.Stop()
	select {
	case <-m.ready:
	case <-m.training.Done():
		return nil, ErrEnded
	case <-timer.C:
		return nil, fmt.Errorf("no worker requested a move within %v", d.Silence())
	}
	if list := m.claim(holder); list != nil {
		return list, nil
	}
	return nil, errors.New("no rows are expected from it, or it has sent them before")
}

// receive takes the rows of transfers, each row once, and answers.
func (m *Repartition) receive(session *peers.Session, list []layout.Transfer) error {
	var frame []byte
	for _, t := range list {
		for row := int64(t.Lo); ; {
			h, err := m.nextOf(t, session)
			if err != nil {
				return err
			}
			to := m.to(t)
			if h.Kind == wire.Moved {
				if err := to.SetUpdates(h.Step); err != nil {
					return err
				}
				break
			}
			if most := to.MaxFrame(row, int64(t.Hi)); h.Length > most {
				return fmt.Errorf("%d bytes of rows of variable %d, want at most %d", h.Length, t.New.Variable, most)
			}
			frame = slices.Grow(frame[:0], int(h.Length))[:h.Length]
			if err := session.Payload(frame); err != nil {
				return err
			}
			if row, err = to.Accept(frame, row, int64(t.Hi)); err != nil {
				return fmt.Errorf("rows of variable %d: %w", t.New.Variable, err)
			}
		}
	}
	if err := session.Send(wire.Frame{Header: wire.Header{Kind: wire.Moved, Step: m.step, Epoch: m.epoch}}); err != nil {
		return err
	}
	m.brought()
	return nil
}

// nextOf returns the header of the next frame, which must belong to transfer t.
func (m *Repartition) nextOf(t layout.Transfer, session *peers.Session) (wire.Header, error) {
	h, err := session.Next()
	switch {
	case err != nil:
		return h, err
	case h.Epoch == m.epoch && isOf(t, h) && (h.Kind == wire.Move && h.Step == m.step || h.Kind == wire.Moved && h.Length == 0):
		return h, nil
	}
	return h, fmt.Errorf("unexpected %s frame for variable %d from row %d in epoch %d, want rows of variable %d from row %d in epoch %d",
		h.Kind, h.Variable, h.Offset, h.Epoch, t.New.Variable, t.Lo, m.epoch)
}

// headerOf returns the header of a frame for rows of transfer t.
func headerOf(t layout.Transfer, kind wire.Kind, step uint64) wire.Header {
	return wire.Header{Kind: kind, Variable: uint32(t.New.Variable), Offset: uint64(t.Lo), Step: step}
}

// isOf reports whether a frame belongs to transfer t.
func isOf(t layout.Transfer, h wire.Header) bool {
	return uint64(h.Variable) == uint64(t.New.Variable) && h.Offset == uint64(t.Lo)
}
