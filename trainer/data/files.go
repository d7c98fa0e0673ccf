package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Files splits a comma-separated list of file names. It replaces a name that
// contains *, ? or [ by all files that match the pattern, sorted, as in a
// shell. A pattern that matches no file is an error.
func Files(list string) ([]string, error) {
	var all []string
	for name := range strings.SplitSeq(list, ",") {
		if _, err := os.Stat(name); err == nil || !strings.ContainsAny(name, "*?[") {
			all = append(all, name) // name is not a pattern; if this file is missing, the function that opens it reports the error
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
