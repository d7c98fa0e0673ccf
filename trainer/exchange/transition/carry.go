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

// Purpose is what holders come to each other for, to bring rows.
//
// The old holder opens the connection. For each range of rows, in order, it
// sends move frames with rows by ascending index, and a moved frame with the
// updates that the piece has had. The new holder's answer to all of it is one
// moved frame.
const Purpose = "move"

const (
	farewell     = 2 * time.Second // bounds how long a peer may take to hang up
	firstSilence = time.Minute     // tolerated until the declaration says how much
)

// send brings a holder what is to be there.
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
		err := m.hear(session)
		if err != nil {
			session.Close() // ends sendAll
		}
		answered <- err
	})
	defer func() {
		session.Close() // nothing is left to be lost
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

// hear waits for the new holder's answer.
func (m *Repartition) hear(session *peers.Session) error {
	h, err := session.Next()
	if err == nil && (h.Kind != wire.Moved || h.Length != 0 || h.Step != m.step) {
		err = fmt.Errorf("unexpected %s frame of step %d while variables move", h.Kind, h.Step)
	}
	if err != nil {
		return session.Blame(err)
	}
	return nil
}

// tie tells the other end why the training ended, if it does, and hangs up in
// bounded time. The caller goes on reading until then.
func tie(training context.Context, session *peers.Session) (untie func()) {
	told := make(chan struct{})
	stop := context.AfterFunc(training, func() {
		defer close(told)
		if why := context.Cause(training); why != ErrEnded {
			session.Tell(why, farewell)
		}
		session.Close() // there is nothing more to report
	})
	return func() {
		if !stop() {
			<-told
		}
	}
}

// Serve takes what another holder brings, until it hangs up. d is the present
// map. The error says why it was refused.
func (m *Repartition) Serve(from peers.Peer, d *layout.Declaration) error {
	session := peers.NewSession(from, m.config.Peers.Generation, firstSilence)
	defer session.Close() // everything was reported
	defer tie(m.training, session)()
	defer session.Drain() // until the other end, which has the answer, hangs up
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

// Refuse tells a holder why nothing is to move here.
func Refuse(from peers.Peer, c Config, why error) {
	peers.NewSession(from, c.Peers.Generation, firstSilence).Refuse(why, farewell)
}

// expect lets in a holder that is to bring something. What it is to bring is
// known once all workers have asked for it, which they may just be doing.
func (m *Repartition) expect(d *layout.Declaration, session *peers.Session) ([]layout.Transfer, error) {
	holder := d.HolderIndex(session.Task)
	if holder < 0 || !d.Movable {
		return nil, errors.New("it has no say in what moves here")
	}
	session.SetSilence(d.Silence())
	timer := time.NewTimer(d.Silence())
	defer timer.Stop()
	select {
	case <-m.ready:
	case <-m.training.Done():
		return nil, ErrEnded
	case <-timer.C:
		return nil, fmt.Errorf("no worker asked within %v for anything to move here", d.Silence())
	}
	if list := m.claim(holder); list != nil {
		return list, nil
	}
	return nil, errors.New("nothing is to come from it, or it came before")
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

// nextOf returns the next frame, which must be of a transfer.
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

// headerOf begins a frame about rows of a transfer.
func headerOf(t layout.Transfer, kind wire.Kind, step uint64) wire.Header {
	return wire.Header{Kind: kind, Variable: uint32(t.New.Variable), Offset: uint64(t.Lo), Step: step}
}

// isOf reports whether a frame is about the transfer.
func isOf(t layout.Transfer, h wire.Header) bool {
	return uint64(h.Variable) == uint64(t.New.Variable) && h.Offset == uint64(t.Lo)
}
