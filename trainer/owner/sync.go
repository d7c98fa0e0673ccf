package owner

import (
	"fmt"
	"strconv"
	"strings"
)

// Mode names how far workers wait for each other.
type Mode string

// The modes.
const (
	Synchronous  Mode = "sync"   // every step takes the gradients of all workers
	Asynchronous Mode = "async"  // every worker's gradient is applied when it comes
	Bounded      Mode = "ssp"    // as async, but no worker is more than Number steps ahead of another
	Grouped      Mode = "group"  // sync inside each of Number groups, async between them
	Backup       Mode = "backup" // the first gradients of a step count, the Number last ones are dropped
)

// Sync is a mode with its number. The zero value is synchronous.
type Sync struct {
	Mode   Mode
	Number int
}

// ParseSync reads sync, async, ssp:K, group:G or backup:B.
func ParseSync(text string) (Sync, error) {
	mode, number, numbered := strings.Cut(text, ":")
	s := Sync{Mode: Mode(mode)}
	wants := s.numbered()
	if wants != numbered || !wants && s.Mode != Synchronous && s.Mode != Asynchronous {
		return Sync{}, badSync(text)
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || strconv.Itoa(n) != number {
			return Sync{}, badSync(text)
		}
		s.Number = n
	}
	return s, nil
}

func badSync(text string) error {
	return fmt.Errorf("synchronisation %q: want sync, async, ssp:K, group:G or backup:B", text)
}

func (s Sync) numbered() bool { return s.Mode == Bounded || s.Mode == Grouped || s.Mode == Backup }

// String writes what ParseSync reads.
func (s Sync) String() string {
	switch {
	case s.Mode == "":
		return string(Synchronous)
	case s.numbered():
		return fmt.Sprintf("%s:%d", s.Mode, s.Number)
	}
	return string(s.Mode)
}

// MarshalText writes the mode as String does.
func (s Sync) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Sync) UnmarshalText(text []byte) error {
	parsed, err := ParseSync(string(text))
	*s = parsed
	return err
}

// Together reports whether all workers take every step together, as one group.
func (s Sync) Together() bool { return s.Mode == Synchronous || s.Mode == "" }

// BearsLoss reports whether training goes on when a worker other than the
// chief is lost: nobody's step needs that one's.
func (s Sync) BearsLoss() bool {
	return s.Mode == Asynchronous || s.Mode == Bounded || s.Mode == Backup
}

// Check says what is wrong with s for so many workers.
func (s Sync) Check(workers int) error {
	switch {
	case s.Mode == Grouped && (s.Number < 1 || s.Number > workers):
		return fmt.Errorf("synchronisation %s: want 1 to %d groups, at most one per worker", s, workers)
	case s.Mode == Backup && (s.Number < 0 || s.Number >= workers):
		return fmt.Errorf("synchronisation %s: want 0 to %d backup workers among %d", s, workers-1, workers)
	case s.Number < 0:
		return badSync(s.String())
	}
	_, err := ParseSync(s.String())
	return err
}
