package ssh

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// closeWait bounds how long Close waits for what it ended to return.
const closeWait = 2 * time.Second

var (
	errClientDone   = errors.New("the connection has ended")
	errClosedByHost = errors.New("the host closed it")
	errSilent       = errors.New("nothing came from the host within the deadline")
)

// Client is a connection to one host. Its methods may be called from several
// goroutines at once.
type Client struct {
	cfg   Config
	conn  *timedConn
	ssh   *gossh.Client
	via   *Client // the jump host, which the Client closes; nil: none
	slots *slots

	stop    chan struct{} // closed by the first giveUp
	once    sync.Once
	cause   error // of the end; written before stop is closed
	workers group

	noisy  atomic.Bool // the notice about start-up files was sent
	noSFTP atomic.Bool // sftp did not start, so Copy uses a command
}

func newClient(cfg Config, conn *timedConn, client *gossh.Client, via *Client) *Client {
	c := &Client{
		cfg: cfg, conn: conn, ssh: client, via: via,
		slots: newSlots(cfg.Sessions),
		stop:  make(chan struct{}),
	}
	c.workers.start(c.watch)
	c.workers.start(c.keepalive)
	return c
}

// Close ends the connection. Calls under way return a LostError. Close is idempotent and
// returns within about 2 s. It cannot end processes that commands left on the host, nor
// a goroutine that blocks in a reader or writer of Run's caller.
func (c *Client) Close() error {
	c.giveUp(net.ErrClosed)
	c.workers.wait(closeWait)
	if c.via != nil {
		return c.via.Close()
	}
	return nil
}

// giveUp ends the connection for good; the first cause is kept.
func (c *Client) giveUp(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.stop)
		// The net.Conn itself: ssh.Client.Close may wait for a write that the
		// network does not take. The error says nothing about a connection that
		// is given up. Through a jump host even this may wait for a write, until
		// that host's connection is given up.
		c.workers.start(func() { _ = c.conn.Close() })
	})
}

// watch gives the connection up when its reader has ended.
func (c *Client) watch() {
	err := c.ssh.Wait()
	switch {
	case err == nil:
		err = errClientDone
	case errors.Is(err, io.EOF):
		err = errClosedByHost // not io.EOF, which readers take for a normal end
	}
	c.giveUp(err)
}

// keepalive sends requests, and gives the connection up if nothing arrives for
// DeadAfter. Any byte counts.
func (c *Client) keepalive() {
	ticker := time.NewTicker(c.cfg.KeepaliveEvery)
	defer ticker.Stop()
	asking := make(chan struct{}, 1)
	for {
		select {
		case <-c.stop:
			return
		case <-ticker.C:
		}
		if c.conn.silence() >= c.cfg.DeadAfter {
			c.giveUp(errSilent)
			return
		}
		select {
		case asking <- struct{}{}:
			c.workers.start(func() {
				// An answer is a read on the connection, even a refusal. A
				// failure ends the connection. So the error is not needed.
				_, _, _ = c.ssh.SendRequest("keepalive@openssh.com", true, nil)
				<-asking
			})
		default: // the last request is not answered yet
		}
	}
}

// lost returns the LostError of a connection that has ended, else nil.
func (c *Client) lost() error {
	select {
	case <-c.stop:
		return &LostError{Host: c.cfg.Host, Cause: c.cause}
	default:
		return nil
	}
}

// explain returns what ended a failed call: the end of ctx, the loss of the connection,
// or else err.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The reader ends the channels a moment before it ends itself.
	if errors.Is(err, errNoStatus) || isDrop(err) {
		select {
		case <-c.stop:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	if lost := c.lost(); lost != nil {
		return lost
	}
	return err
}
