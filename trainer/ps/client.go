package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sync/errgroup"
)

// ClientConfig says who a worker is, whom it works with, and where its
// variables lie.
type ClientConfig struct {
	Self        cluster.Task
	Key         cluster.Key
	Generation  int
	Servers     []string // addresses, by index
	Declaration Declaration
	// Values and Gradients are the worker's memory by variable, as wire.Bytes
	// gives it. The client writes values during Dial and Step and reads
	// gradients during Step; between the calls they are the worker's. At Dial
	// the chief's values are what everybody starts from.
	Values, Gradients [][]byte
}

// Client is a worker's side of the servers. One goroutine calls Step; Close
// may be called by any.
type Client struct {
	config ClientConfig
	links  []*link
	step   uint64

	mu     sync.Mutex
	err    error
	failed chan struct{}
	ended  bool // the connections end in good order
}

// Dial connects to every server, declares, and returns once all workers have
// done so and the chief's values are in config.Values. All of it takes at
// most the declaration's start time, and a little for the servers to say who
// is missing.
func Dial(ctx context.Context, config ClientConfig) (*Client, error) {
	if err := config.Declaration.Check(len(config.Servers)); err != nil {
		return nil, err
	}
	body, err := json.Marshal(config.Declaration)
	if err != nil {
		return nil, fmt.Errorf("declaration: %w", err)
	}
	limit := time.Duration(config.Declaration.StartMillis) * time.Millisecond
	c := &Client{config: config, failed: make(chan struct{})}
	ctx, cancel := context.WithTimeoutCause(ctx, limit+farewell,
		fmt.Errorf("not ready within %v", limit))
	defer cancel()
	err = c.connect(ctx, limit)
	if err == nil {
		err = c.exchange(ctx, func(l *link) error { return l.declare(body) })
	}
	if err != nil {
		c.Abort(err)
		return nil, err
	}
	return c, nil
}

// connect opens the links, all at once. A server that is reached may already
// say why there will be no training, which ends the waiting for the others.
func (c *Client) connect(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not reached within %v", limit))
	defer cancel()
	c.links = make([]*link, len(c.config.Servers))
	group, ctx := errgroup.WithContext(ctx)
	for i := range c.links {
		group.Go(func() error {
			l, err := c.dial(ctx, i)
			if err != nil {
				return err
			}
			c.links[i] = l
			l.running.Go(l.receive)
			return nil
		})
	}
	connected := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-c.failed:
			cancel()
		case <-connected:
		}
	})
	err := group.Wait()
	close(connected)
	watching.Wait()
	if reason := c.reason(); reason != nil {
		return reason
	}
	return err
}

// Step sends the gradients with the step's learning rate and this worker's
// loss, and returns the loss of the whole batch once every value is updated.
// All workers must give the same rate. After an error, also after ctx ended,
// the client is of no more use and the values are undefined; a [PeerError]
// says who is to blame.
func (c *Client) Step(ctx context.Context, rate, loss float64) (float64, error) {
	if ctx.Err() != nil {
		c.fail(context.Cause(ctx))
		return 0, c.hangUp()
	}
	err := c.exchange(ctx, func(l *link) error { return l.push(c.step, rate, loss) })
	if err != nil {
		return 0, err
	}
	c.step++
	if len(c.links) == 0 {
		return loss, nil
	}
	return c.links[0].loss, nil
}

// exchange sends to every server and waits until every one has answered.
func (c *Client) exchange(ctx context.Context, send func(*link) error) error {
	if err := c.reason(); err != nil {
		return err
	}
	for _, l := range c.links {
		l.running.Go(func() {
			if err := send(l); err != nil {
				l.sendFailed(err)
			}
		})
	}
	for _, l := range c.links {
		select {
		case <-l.answered:
		case <-c.failed:
			return c.hangUp()
		case <-ctx.Done():
			c.fail(context.Cause(ctx))
			return c.hangUp()
		}
	}
	return nil
}

// fail ends the client's work, once, with err.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.ended {
		c.err = err
		close(c.failed)
	}
}

func (c *Client) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.ended {
		return errEnded
	}
	return c.err
}

// hangUp tells the servers why this worker is out, so that they pass the
// cause on and not its consequence, and closes the links. It returns the
// reason, in bounded time.
func (c *Client) hangUp() error {
	reason := c.reason()
	var leaving sync.WaitGroup
	for _, l := range c.links {
		if l != nil {
			leaving.Go(func() { l.leave(reason) })
		}
	}
	leaving.Wait()
	return reason
}

// Abort hangs up without a goodbye: the servers take the worker for lost and
// the other workers hear why.
func (c *Client) Abort(why error) {
	c.fail(why)
	c.hangUp() // the reason is known
	c.Close()  // without a goodbye there is nothing to fail
}

// Close says goodbye to every server, unless the client has failed, and hangs
// up. It returns in bounded time; a server that did not answer the goodbye
// will take the worker for lost.
func (c *Client) Close() error {
	c.mu.Lock()
	wasEnded, healthy := c.ended, c.err == nil
	c.ended = true
	c.mu.Unlock()
	if wasEnded {
		return nil
	}
	var closing sync.WaitGroup
	errs := make([]error, len(c.links))
	for i, l := range c.links {
		if l != nil {
			closing.Go(func() { errs[i] = l.close(healthy) })
		}
	}
	closing.Wait()
	return errors.Join(errs...)
}
