package failpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// parse reads the variable; of an empty one it returns nil.
func parse(text string) (*faults, error) {
	if text == "" {
		return nil, nil
	}
	f := &faults{map[place]action{}, map[string]*atomic.Uint64{}, map[string][]awaited{}}
	for entry := range strings.SplitSeq(text, ";") {
		at, what, file, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", entry, err)
		}
		f.hits[at.name] = new(atomic.Uint64)
		if file != "" {
			f.files[at.name] = append(f.files[at.name], awaited{file, what})
			continue
		}
		if _, twice := f.actions[at]; twice {
			return nil, fmt.Errorf("entry %q: that hit of %s has an entry already", entry, at.name)
		}
		f.actions[at] = what
	}
	return f, nil
}

// parseEntry reads name=action, name=action@n or name=action@/path.
func parseEntry(entry string) (at place, what action, file string, err error) {
	name, rest, found := strings.Cut(entry, "=")
	if !found {
		return at, "", "", errors.New("no =, want name=action or name=action@n")
	}
	if name == "" || strings.Trim(name, letters) != "" {
		return at, "", "", fmt.Errorf("name %q, want letters, digits and . - _", name)
	}
	at.name = name
	word, number, counted := strings.Cut(rest, "@")
	what = action(word)
	if actions[what] == nil {
		return at, "", "", fmt.Errorf("action %q, want one of %s", word, strings.Join(words(), ", "))
	}
	switch {
	case strings.HasPrefix(number, "/"):
		file = number
	case counted:
		at.hit, err = strconv.ParseUint(number, 10, 64)
		if err != nil || at.hit == 0 {
			return at, "", "", fmt.Errorf("hit %q, want a whole number from 1 on, or a file's path from the root", number)
		}
	}
	return at, what, file, nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// words are the names of all actions, in order.
func words() []string {
	var all []string
	for a := range maps.Keys(actions) {
		all = append(all, string(a))
	}
	slices.Sort(all)
	return all
}
