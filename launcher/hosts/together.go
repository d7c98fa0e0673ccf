package hosts

import "github.com/plx-run/plx/launcher/console"

// Listed names hosts.
func Listed(names []string) string {
	if len(names) == 1 {
		return "host " + names[0]
	}
	return "hosts " + console.Fold(names)
}
