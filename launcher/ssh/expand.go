package ssh

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// expander replaces ~, % and ${} in file names of a configuration.
type expander struct {
	home    string
	tokens  map[byte]string
	written string // the configuration, to see which paths it has literally
}

func newExpander(cfg Config, t target) expander {
	local, _ := os.Hostname() // only for the tokens %l and %L
	short, _, _ := strings.Cut(local, ".")
	// A file that cannot be read has no literal paths; ssh reported it already.
	written, _ := os.ReadFile(cfg.ConfigFile)
	return expander{
		home:    cfg.Home,
		written: string(written),
		tokens: map[byte]string{
			'%': "%", 'd': cfg.Home, 'h': t.hostName, 'n': cfg.Host, 'k': firstOf(t.keyAlias, cfg.Host),
			'p': strconv.Itoa(t.port), 'r': t.user, 'u': localUser(), 'l': local, 'L': short,
			'i': strconv.Itoa(os.Getuid()),
		},
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// path expands a file name as the configuration has it. Relative names are
// relative to the home, for the working folder has no say in who is believed.
func (e expander) path(value string) string {
	value = os.Expand(strings.Trim(value, `"`), func(name string) string { return os.Getenv(name) })
	value = e.percent(value)
	switch {
	case value == "none":
		return value
	case value == "~" || strings.HasPrefix(value, "~/"):
		return filepath.Join(e.home, value[1:])
	case !filepath.IsAbs(value):
		return filepath.Join(e.home, value)
	}
	return filepath.Clean(value)
}

func (e expander) percent(value string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+1 < len(value) {
			if token, known := e.tokens[value[i+1]]; known {
				b.WriteString(token)
				i++
				continue
			}
		}
		b.WriteByte(value[i])
	}
	return b.String()
}

// ownPath is path for what ssh has expanded already, with the home of the
// password file for ~. Unless the configuration has that home literally, it is
// replaced by ours.
func (e expander) ownPath(value string) string {
	path := e.path(value)
	other := sshHome()
	if other == "" || other == e.home || strings.Contains(e.written, path) {
		return path
	}
	if rest, found := strings.CutPrefix(path, other+"/"); found {
		return filepath.Join(e.home, rest)
	}
	return path
}

// splitWords splits at blanks outside double quotes.
func splitWords(line string) []string {
	var words []string
	quoted := false
	for _, part := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t')
	}) {
		words = append(words, strings.Trim(part, `"`))
	}
	return words
}

// parseHop reads [user@]host[:port] or ssh://[user@]host[:port].
func parseHop(word string) (hop, error) {
	if rest, isURL := strings.CutPrefix(word, "ssh://"); isURL {
		word = strings.TrimSuffix(rest, "/")
	}
	var h hop
	if at := strings.LastIndexByte(word, '@'); at >= 0 {
		unescaped, err := url.PathUnescape(word[:at])
		if err != nil {
			return hop{}, err
		}
		h.user, word = unescaped, word[at+1:]
	}
	host, port, found := cutPort(word)
	h.host = host
	if found {
		number, err := strconv.Atoi(port)
		if err != nil || number < 1 || number > 65535 {
			return hop{}, fmt.Errorf("port %q is not between 1 and 65535", port)
		}
		h.port = number
	}
	if h.host == "" {
		return hop{}, errors.New("host is empty")
	}
	return h, errors.Join(checkName("host", h.host), checkName("user", h.user))
}

// cutPort splits host:port; an IPv6 address with a port stands in brackets.
func cutPort(word string) (host, port string, found bool) {
	if rest, bracketed := strings.CutPrefix(word, "["); bracketed {
		host, after, closed := strings.Cut(rest, "]")
		if port, found = strings.CutPrefix(after, ":"); closed {
			return host, port, found
		}
		return word, "", false
	}
	if strings.Count(word, ":") == 1 {
		host, port, _ = strings.Cut(word, ":")
		return host, port, true
	}
	return word, "", false
}
