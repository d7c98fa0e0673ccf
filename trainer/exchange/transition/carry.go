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

var errEnded = errors.New("training has ended")

// send brings a holder what is to be there.
func (m *Repartition) send(ctx context.Context, to int, list []layout.Transfer) error {
	c := m.config
	task := m.d.Holders[to]
	dialling, cancel := context.WithTimeoutCause(ctx, m.d.Silence(), fmt.Errorf("not reached within %v", m.d.Silence()))
	defer cancel()
	raw, err := peers.Dial(dialling, c.Peers, task, c.Cluster.Addr(task), Purpose)
	if err != nil {
		return err
	}
	conn := wire.NewConn(raw, c.Peers.Generation, m.d.Silence())
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
	untie := tie(m.training, conn)
	defer func() {
		untie()
		conn.Close() // nothing is left to be lost
		hearing.Wait()
	}()
	sent := m.sendAll(conn, list)
	if sent != nil { // the holder's own words say more, when they come
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

func (m *Repartition) sendAll(conn *wire.Conn, list []layout.Transfer) error {
	var frame []byte
	for _, t := range list {
		from := m.from(t)
		for row := int64(t.Lo); ; {
			if frame, row = from.Export(frame[:0], row, int64(t.Hi)); len(frame) == 0 {
				break
			}
			if err := conn.Send(wire.Frame{Header: headerOf(t, wire.Move, m.step), Payload: frame}); err != nil {
				return err
			}
		}
		if err := conn.Send(wire.Frame{Header: headerOf(t, wire.Moved, from.Updates())}); err != nil {
			return err
		}
	}
	return nil
}

// hear waits for the new holder's answer.
func (m *Repartition) hear(conn *wire.Conn, to int) error {
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
func tie(t Training, conn *wire.Conn) (untie func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-done:
			return
		case <-t.Ended():
		}
		hangUp := time.AfterFunc(farewell, func() { conn.Close() })
		defer hangUp.Stop()
		if t.Err() == nil || conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(t.Err())}) != nil {
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

// Serve takes what another holder brings, until it hangs up. d is the present
// map. The error says why it was refused.
func (m *Repartition) Serve(from peers.Peer, d *layout.Declaration) error {
	conn := wire.NewConn(from.Conn, m.config.Peers.Generation, firstSilence)
	defer conn.Close() // all was said
	defer tie(m.training, conn)()
	list, err := m.expect(from, d, conn)
	if err != nil {
		refuse(conn, err)
		return err
	}
	if err := m.receive(conn, list); err != nil {
		var known *peers.PeerError
		if !errors.As(err, &known) {
			err = &peers.PeerError{Task: from.Task, Addr: from.Addr, Err: peers.Lost(err)}
		}
		m.host.Fail(err)
	}
	conn.Drain() // until the other end, which has the answer, hangs up
	return nil
}

// Refuse tells a holder why nothing is to move here.
func Refuse(from peers.Peer, c Config, why error) {
	conn := wire.NewConn(from.Conn, c.Peers.Generation, firstSilence)
	defer conn.Close()
	refuse(conn, why)
}

func refuse(conn *wire.Conn, why error) {
	conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(why)}) // whoever it is, the training does without
	hangUp := time.AfterFunc(farewell, func() { conn.Close() })
	defer hangUp.Stop()
	conn.Drain()
}

// expect lets in a holder that is to bring something. What it is to bring is
// known once all workers have asked for it, which they may just be doing.
func (m *Repartition) expect(from peers.Peer, d *layout.Declaration, conn *wire.Conn) ([]layout.Transfer, error) {
	holder := d.HolderIndex(from.Task)
	if holder < 0 || !d.Movable {
		return nil, errors.New("it has no say in what moves here")
	}
	conn.SetSilence(d.Silence())
	timer := time.NewTimer(d.Silence())
	defer timer.Stop()
	select {
	case <-m.ready:
	case <-m.training.Ended():
		return nil, errEnded
	case <-timer.C:
		return nil, fmt.Errorf("no worker asked within %v for anything to move here", d.Silence())
	}
	if list := m.claim(holder); list != nil {
		return list, nil
	}
	return nil, errors.New("nothing is to come from it, or it came before")
}

// receive takes the rows of transfers, each row once, and answers.
func (m *Repartition) receive(conn *wire.Conn, list []layout.Transfer) error {
	var frame []byte
	for _, t := range list {
		for row := int64(t.Lo); ; {
			h, err := m.nextOf(t, conn)
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
			if err := conn.Payload(frame); err != nil {
				return err
			}
			if row, err = to.Accept(frame, row, int64(t.Hi)); err != nil {
				return fmt.Errorf("rows of variable %d: %w", t.New.Variable, err)
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
func (m *Repartition) nextOf(t layout.Transfer, conn *wire.Conn) (wire.Header, error) {
	h, err := conn.Next()
	switch {
	case err != nil:
		return h, err
	case h.Kind == wire.Error:
		return h, told(conn, h)
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
