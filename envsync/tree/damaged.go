package tree

import "fmt"

// DamagedError is the error for corrupt files in a host's content store. The
// store has removed them, so sending the folder again repairs the store.
type DamagedError struct {
	Dir   string   // path of the content store on the host
	Files []string // paths in the sent folder of the files that have the corrupt content
}

func (e *DamagedError) Error() string {
	more := ""
	if n := len(e.Files) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("damaged in %s, and removed there: %s%s", e.Dir, shown(e.Files[0]), more)
}
