package hosts

import "github.com/plx-run/plx/launcher/console"

// Listed returns the names in one phrase, such as "host a" or "hosts a, b".
func Listed(names []string) string {
	if len(names) == 1 {
		return "host " + names[0]
	}
	return "hosts " + console.Fold(names)
}
