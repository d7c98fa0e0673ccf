package exchange

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// pulls are the requests for rows that are under way.
type pulls struct {
	mu   sync.Mutex
	last uint32
	open map[uint32]*request
}

// request is a piece's share of what is wanted.
type request struct {
	variable int
	into     []byte
	done     chan struct{}
}

// add returns the number of a new request.
func (p *pulls) add(variable int, into []byte) (uint32, *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[uint32]*request{}
	}
	for p.last++; p.open[p.last] != nil; p.last++ {
	}
	r := &request{variable: variable, into: into, done: make(chan struct{})}
	p.open[p.last] = r
	return p.last, r
}

// take returns a request and forgets it.
func (p *pulls) take(number uint32) *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.open[number]
	delete(p.open, number)
	return r
}

// rows reads the answer to a request to where it is wanted.
func (l *link) rows(h wire.Header) error {
	r := l.client.pulls.take(h.Part)
	if r == nil || int(h.Variable) != r.variable || h.Length != uint64(len(r.into)) {
		return fmt.Errorf("rows of variable %d, %d bytes, which nobody asked for", h.Variable, h.Length)
	}
	if err := l.conn.Payload(r.into); err != nil {
		return err
	}
	v := &l.volumes[h.Variable]
	v.pulled.Add(uint64(len(r.into) / l.client.d.Variables[h.Variable].UnitBytes()))
	v.received.Add(wire.HeaderSize + h.Length)
	close(r.done)
	return nil
}

// Rows copies rows of a sparse variable, by strictly ascending index, to
// into, one after the other. In a step it must be called before the virtual worker
// contributes. It may be called by several goroutines side by side; after an
// error the client is of no more use.
func (c *Client) Rows(ctx context.Context, variable int, index []int64, into []byte) error {
	if err := c.askable(variable, index, into); err != nil {
		return err
	}
	var waiting []*request
	for _, p := range c.portions(c.shards.Load().d.Pieces, []Wanted{{variable, index, into}}) {
		h := wire.Header{Kind: wire.Pull, Variable: uint32(variable), Offset: uint64(p.Offset)}
		r, err := c.pull(h, p.Piece, p.index, p.into)
		if err != nil {
			return err
		}
		waiting = append(waiting, r)
	}
	return c.collect(ctx, waiting)
}

// Whole copies all values of a variable to into, for saving and comparing.
// Those of a sparse one are fetched from their holders, row by row as they are
// at the moment.
func (c *Client) Whole(ctx context.Context, variable int, into []byte) error {
	if variable < 0 || variable >= len(c.d.Variables) {
		return fmt.Errorf("variable %d of %d", variable, len(c.d.Variables))
	}
	v := c.d.Variables[variable]
	if want := v.NumElements() * v.Dtype.Size(); len(into) != want {
		return fmt.Errorf("variable %q: %d bytes for %d", v.Name, len(into), want)
	}
	if v.Sparse == nil {
		for _, p := range c.shards.Load().d.Pieces {
			if p.Variable == variable {
				copy(into[p.Offset*v.UnitBytes():], c.pieceMemory(p))
			}
		}
		return nil
	}
	if err := c.pullable(variable); err != nil {
		return err
	}
	most := rangeRows(v.UnitBytes())
	for _, p := range c.shards.Load().d.Pieces {
		if p.Variable != variable {
			continue
		}
		for from := p.Offset; from < p.Offset+p.Count; from += most {
			n := min(most, p.Offset+p.Count-from)
			share := into[from*v.UnitBytes() : (from+n)*v.UnitBytes()]
			h := wire.Header{Kind: wire.Pull, Variable: uint32(variable), Offset: uint64(p.Offset), Step: uint64(from)}
			r, err := c.pull(h, p, nil, share)
			if err == nil {
				err = c.collect(ctx, []*request{r})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Client) pullable(variable int) error {
	if variable < 0 || variable >= len(c.d.Variables) || c.d.Variables[variable].Sparse == nil {
		return fmt.Errorf("rows of variable %d, which is not sparse", variable)
	}
	return c.working()
}

// pull asks for rows of a piece: those of a list, or without one those that h
// says. Own rows are there at once, which the request nil says.
func (c *Client) pull(h wire.Header, p layout.Piece, index []int64, into []byte) (*request, error) {
	l := c.links[p.Holder]
	if l == nil {
		t := c.local.rowsOf(p)
		if index == nil {
			return nil, t.CopyRows(int64(h.Step), into)
		}
		return nil, t.Read(index, into)
	}
	var body []byte
	if index != nil {
		body = sparse.AppendIndex(nil, index)
	}
	l.volumes[p.Variable].sent.Add(uint64(wire.HeaderSize + len(body)))
	number, r := c.pulls.add(p.Variable, into)
	h.Part = number
	if err := l.conn.Send(wire.Frame{Header: h, Payload: body}); err != nil {
		l.sendFailed(err)
		return nil, cmp.Or(c.reason(), err)
	}
	return r, nil
}

// collect waits for what was asked for.
func (c *Client) collect(ctx context.Context, waiting []*request) error {
	for _, r := range waiting {
		if r == nil {
			continue
		}
		select {
		case <-r.done:
		case <-c.failed:
			return c.hangUp()
		case <-ctx.Done():
			c.fail(context.Cause(ctx)) // what was asked for may still be written to into
			return c.hangUp()
		}
	}
	return nil
}
