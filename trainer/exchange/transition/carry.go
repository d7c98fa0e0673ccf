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

// Purpose is the purpose of a connection on which a shard holder (a task that
// stores parts of variables) sends rows to another shard holder.
//
// The old holder of the rows opens the connection. For each range of rows, it
// sends Move frames with rows in ascending order. A Moved frame ends the
// range; it contains the number of times that the piece was updated. After all
// ranges, the new holder replies with one Moved frame.
const Purpose = "move"

const (
	farewell     = 2 * time.Second // longest time to wait until a peer closes its connection
	firstSilence = time.Minute     // how long a peer may send nothing before Declaration.SilenceMillis is known
)

// send sends the rows in list to the shard holder with index to in
// m.d.Holders, and waits for that task's reply.
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
			session.Close() // makes sendAll fail and return
		}
		answered <- err
	})
	defer func() {
		session.Close() // ignore the error: nothing more is sent or received
		untie()
		hearing.Wait()
	}()
	sent := m.sendAll(session, list)
	if sent != nil { // wait up to a second for the peer's own report, which explains the failure better than the error in sent
		defer time.AfterFunc(time.Second, func() { session.Close() }).Stop()
	}
	if err := <-answered; err != nil { // every call of send receives a value here: awaitAnswer fails when the connection or the training ends
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

// awaitAnswer waits until the task that becomes the rows' shard holder
// confirms that all rows have arrived.
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

// tie closes a session when the training ends. If the training failed, tie
// first sends the reason to the peer, and waits at most farewell. The caller
// must read from the session until it is closed. The function untie cancels
// this.
func tie(training context.Context, session *peers.Session) (untie func()) {
	told := make(chan struct{})
	stop := context.AfterFunc(training, func() {
		defer close(told)
		if why := context.Cause(training); why != ErrEnded {
			session.CloseWithError(why, farewell)
		}
		session.Close() // ignore the error: nothing more is sent or received
	})
	return func() {
		if !stop() {
			<-told
		}
	}
}

// Serve receives rows from another shard holder until that holder closes the
// connection. d is the declaration before the move. Serve returns an error if
// it refuses the holder. If it accepts the holder and receiving then fails,
// Serve ends the training and returns nil.
func (m *Repartition) Serve(from peers.Peer, d *layout.Declaration) error {
	session := peers.NewSession(from, m.config.Peers.Generation, firstSilence)
	defer session.Close() // ignore the error: nothing more is sent or received
	defer tie(m.training, session)()
	defer session.Drain() // waits until the peer has received the reply and closes the connection
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

// Refuse is for a task that accepts no rows. It sends the reason to the shard
// holder that has connected to send some.
func Refuse(from peers.Peer, c Config, why error) {
	peers.NewSession(from, c.Peers.Generation, firstSilence).Refuse(why, farewell)
}

// expect returns the rows that the connected shard holder must send to this
// task, or an error if it has none to send. The other holder may learn earlier
// than this task that rows move. So expect first waits until this task has
// received all workers' requests to move.
func (m *Repartition) expect(d *layout.Declaration, session *peers.Session) ([]layout.Transfer, error) {
	holder := d.HolderIndex(session.Task)
	if holder < 0 || !d.Movable {
		return nil, errors.New("it is no holder of movable variables")
	}
	session.SetPeerTimeout(d.Silence())
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

// receive stores the rows of all transfers in list. It sends the reply after
// the last transfer. It fails if a row is missing or arrives twice.
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

// nextOf returns the header of the next frame. It fails if the frame does not
// belong to transfer t.
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
