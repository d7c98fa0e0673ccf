package exchange

import (
	"errors"
	"time"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// leave tells the holder why the worker is out and closes the link.
func (l *link) leave(why error) {
	hangUp := time.AfterFunc(time.Second, func() { l.conn.Close() }) // ends Send and receive
	defer hangUp.Stop()
	err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(why)})
	if err == nil {
		<-l.over // the holder answers in kind
	}
	l.conn.Close() // of no more use, whatever it says
}

// close says goodbye where asked to, and hangs up.
func (l *link) close(goodbye bool) (err error) {
	if goodbye {
		err = l.farewell()
	}
	l.conn.Close() // nothing is left to be lost
	l.running.Wait()
	return err
}

// farewell says goodbye and waits for the answer.
func (l *link) farewell() error {
	hangUp := time.AfterFunc(goodbyeTime, func() { l.conn.Close() }) // ends Send and receive
	defer hangUp.Stop()
	err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
	<-l.over
	var told *peers.PeerError // what the holder said instead
	if !l.goodbye && errors.As(l.cause, &told) && told.Task != l.task {
		return l.cause
	}
	if err == nil && !l.goodbye {
		err = errors.New("no answer to goodbye")
	}
	if err != nil {
		return &peers.PeerError{Task: l.task, Addr: l.addr, Err: peers.Lost(err)}
	}
	return nil
}
