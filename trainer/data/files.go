package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Files returns the names of a list that commas separate. A name with *, ? or [ stands
// for all files that match it, sorted, as in a shell; one that nothing matches is an
// error.
func Files(list string) ([]string, error) {
	var all []string
	for name := range strings.SplitSeq(list, ",") {
		if _, err := os.Stat(name); err == nil || !strings.ContainsAny(name, "*?[") {
			all = append(all, name) // what is missing its reader reports
			continue
		}
		found, err := filepath.Glob(name)
		if err != nil {
			return nil, fmt.Errorf("files %s: %w", name, err)
		}
		if len(found) == 0 {
			return nil, hintedError{fmt.Errorf("files %s: there are none", name), "every host needs the files at the same path"}
		}
		all = append(all, found...)
	}
	return all, nil
}
