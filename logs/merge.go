package logs

import "io"

// Merge takes all hosts' chunks to their ends, with a function for each that is
// like [Reader.Next], and emits them in order of time, as far as the hosts'
// clocks agree; chunks of one host keep their order, and the next is asked for
// once the one before was emitted. It waits for the slowest host, so it is for
// requests without Follow.
//
// A host whose chunks end with an error does not stop the others. Merge returns
// each host's error, nil for the good ones; that of emit, which ends it, is the
// error of the host whose chunk it was.
func Merge(hosts []func() (Chunk, error), emit func(host int, c Chunk) error) []error {
	errs := make([]error, len(hosts))
	heads := make([]*Chunk, len(hosts)) // the next chunk of each host, nil after its last
	advance := func(i int) {
		heads[i] = nil
		switch c, err := hosts[i](); err {
		case nil:
			heads[i] = &c
		case io.EOF: // others may wrap it
		default:
			errs[i] = err
		}
	}
	for i := range hosts {
		advance(i)
	}
	for {
		oldest := -1
		for i, c := range heads {
			if c != nil && (oldest < 0 || c.Time.Before(heads[oldest].Time)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return errs
		}
		if err := emit(oldest, *heads[oldest]); err != nil {
			errs[oldest] = err
			return errs
		}
		advance(oldest) // not before emit is done: reading on takes its bytes away
	}
}
