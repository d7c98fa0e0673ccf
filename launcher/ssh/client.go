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
	via   *Client // the hop before, owned; nil when dialled directly
	slots *slots

	stop    chan struct{} // closed by the first give-up
	once    sync.Once
	cause   error // why, written before stop is closed
	workers group

	noisy  atomic.Bool // the notice about start-up files was given
	noSFTP atomic.Bool // sftp did not start once, so Copy uses a command
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

// Close ends the connection and what is outstanding on it, which returns a
// LostError. It is idempotent and returns within about 2 s. It cannot end what
// commands left running on the host, nor a goroutine that is blocked in a
// reader or writer the caller gave to Run.
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
		// The net.Conn itself, for ssh.Client.Close may wait behind a write
		// that the network does not take. Its error says nothing: the
		// connection is given up in any case. Through a jump host even this
		// may wait for a write, until that host's connection is given up.
		c.workers.start(func() { _ = c.conn.Close() })
	})
}

// watch notices that the connection's reader ended.
func (c *Client) watch() {
	err := c.ssh.Wait()
	switch {
	case err == nil:
		err = errClientDone
	case errors.Is(err, io.EOF):
		err = errClosedByHost // not io.EOF, which readers take for an end in good order
	}
	c.giveUp(err)
}

// keepalive asks the host for a sign of life and gives up when none came for
// DeadAfter. Anything that comes counts.
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
				// The answer, even a refusal, is a read on the connection, and
				// a failure ends that: there is nothing to do with the error.
				_, _, _ = c.ssh.SendRequest("keepalive@openssh.com", true, nil)
				<-asking
			})
		default: // still waiting for the answer to the last
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

// explain turns the failure of something outstanding into what ended it: the
// caller's context, the connection, or the failure itself.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The reader ends a moment after it has ended the channels.
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
