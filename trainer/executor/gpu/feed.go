package gpu

import (
	"bytes"
	"errors"
	"sync"

	"github.com/plx-run/plx/trainer/executor/device"
)

// feed is an input, a fixed value or a random number generator's state, which
// a run copies to the GPU.
type feed struct {
	at     device.Pointer
	host   []byte                 // pinned host memory, the source of the copy to the GPU
	from   []byte                 // the caller's memory of a fixed value; nil for inputs and for states of random number generators
	fill   func(host []byte) bool // updates host and reports whether it changed; nil for an input, whose host memory the caller fills
	read   bool                   // true if an instruction reads the value, so that it must wait for the copy
	stays  bool                   // true if the GPU updates the value itself, so that runs do not copy it
	copied device.Event
}

// feeds copies all inputs, fixed values and states of random number generators
// of a machine to the GPU.
type feeds struct {
	gpu    *Device
	stream device.Stream
	all    []feed // inputs, then fixed values (such as variables), then states of random number generators; runs copy them in this order
	fixed  int    // index of the first fixed value in the field all

	mu      sync.Mutex // held while renew puts a copy on the stream
	refused error      // error of the first copy in renew that failed; the next run returns it
}

// add appends feed f and returns n bytes of pinned host memory for it.
func (a *feeds) add(f feed, n int) (host []byte, err error) {
	if f.host, err = a.gpu.pinned(n); err != nil {
		return nil, err
	}
	if f.copied, err = a.gpu.NewEvent(); err != nil {
		return nil, err
	}
	a.all = append(a.all, f)
	return f.host, nil
}

// keep makes the fixed values (such as variables) stay on the GPU, so that
// runs no longer copy them. It returns the indices of the feeds that runs
// still copy.
func (a *feeds) keep() (others []int) {
	for i := range a.all {
		if f := &a.all[i]; f.from != nil {
			f.stays = true
		} else {
			others = append(others, i)
		}
	}
	return others
}

// copyIn starts the copies of inputs, fixed values and states of random number
// generators to the GPU. If all is false it skips fixed values that have not
// changed since the last copy.
func (a *feeds) copyIn(all bool) error {
	if a.refused != nil {
		return a.refused
	}
	for i := range a.all {
		f := &a.all[i]
		if f.stays || f.fill != nil && !f.fill(f.host) && !all {
			continue // the GPU has the value already, or renew has started the copy
		}
		if err := a.copyPart(f, 0, len(f.host)); err != nil {
			return err
		}
	}
	return nil
}

// copyPart starts the copy of bytes [from, to) of feed f.
func (a *feeds) copyPart(f *feed, from, to int) error {
	if err := a.stream.In(f.at+device.Pointer(from), f.host[from:to]); err != nil {
		return err
	}
	return a.stream.Record(f.copied)
}

// renew starts the copy of bytes [from, to) of fixed value i: see
// Machine.Renew. It skips a value that no instruction reads: no run waits for
// such a copy, so the GPU could still read the pinned memory when renew
// overwrites it. The next run copies a skipped value.
func (a *feeds) renew(i, from, to int) {
	f := &a.all[a.fixed+i]
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused != nil || f.stays || !f.read || from == to {
		return
	}
	copy(f.host[from:to], f.from[from:to])
	a.refused = a.copyPart(f, from, to)
}

func (a *feeds) close() error {
	all := []error{a.stream.Close()}
	for _, f := range a.all {
		all = append(all, a.gpu.FreeHost(f.host), f.copied.Close())
	}
	return errors.Join(all...)
}

// update copies the bytes of slice from to slice to. It reports whether the
// two slices differed.
func update(to, from []byte) bool {
	if bytes.Equal(to, from) {
		return false
	}
	copy(to, from)
	return true
}
