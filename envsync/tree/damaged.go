package tree

import "fmt"

// DamagedError says that contents in the store of a host were wrong. They were removed: to send the
// folder again mends it.
type DamagedError struct {
	Dir   string   // of the store
	Files []string // that were to be made of the contents
}

func (e *DamagedError) Error() string {
	more := ""
	if n := len(e.Files) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("damaged in %s, and removed there: %s%s", e.Dir, shown(e.Files[0]), more)
}
