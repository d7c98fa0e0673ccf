package fetch

import (
	"errors"
	"fmt"
	"path"
	"syscall"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

// errFull says that the disk of this machine is full.
type errFull struct{ error }

func (e errFull) Unwrap() error { return e.error }

// isFull reports whether an error of this machine says that its disk is full, or the
// user's share of it.
func isFull(err error) bool {
	return errors.As(err, new(ownFault)) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// full is one error for all files that the disk has no room for. missing is the size of
// what is not fetched.
func (f *fetcher) full(missing int64) error {
	err := fmt.Errorf("%s: the disk of this machine is full: %s more to fetch", f.from.Dir, console.Size(missing))
	return errFull{exit.WithHint(err, fmt.Sprintf("make room; then plx fetch %s %s fetches the rest", f.from.Hosts[0].Job, f.from.Dir))}
}

// missing is the size of the files of checkpoints that are not fetched.
func (f *fetcher) missing(all []checkpoint) (size int64) {
	for _, c := range all {
		for _, file := range c.files {
			if c.missing == "" && !f.taken[path.Join(c.folder, file.Name)] {
				size += file.Size
			}
		}
	}
	return size
}

// joined puts the errors of outputs together. Those of a full disk become one.
func (f *fetcher) joined(all []blob, errs []error) error {
	var others []error
	missing, full := int64(0), false
	for i, err := range errs {
		if err != nil {
			missing += all[i].size
		}
		if isFull(err) {
			full = true
		} else {
			others = append(others, err)
		}
	}
	if full {
		others = append(others, f.full(missing))
	}
	return errors.Join(others...)
}
