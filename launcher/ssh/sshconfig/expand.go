package sshconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// expander replaces "~", % tokens and ${VARIABLE} in file names of an ssh
// configuration.
type expander struct {
	home    string // directory that replaces "~"
	tokens  *strings.Replacer
	written string // text of the ssh configuration; ownPath does not change a path that occurs in it
}

func newExpander(q Query, t Target) expander {
	local, _ := os.Hostname() // the host name is needed only for the tokens %l and %L
	short, _, _ := strings.Cut(local, ".")
	// The error is ignored: ssh has already reported an unreadable
	// configuration file. Without the file's text, ownPath replaces the home
	// directory in every path.
	written, _ := os.ReadFile(q.ConfigFile)
	return expander{
		home:    q.Home,
		written: string(written),
		tokens: strings.NewReplacer(
			"%%", "%", "%d", q.Home, "%h", t.HostName, "%n", q.Host, "%k", cmp.Or(t.KeyAlias, q.Host),
			"%p", strconv.Itoa(t.Port), "%r", t.User, "%u", localUser(), "%l", local, "%L", short,
			"%i", strconv.Itoa(os.Getuid()),
		),
	}
}

// path expands a file name of the ssh configuration. A relative name is
// relative to the home directory, so that the working directory cannot decide
// which keys are trusted.
func (e expander) path(value string) string {
	value = e.tokens.Replace(os.Expand(strings.Trim(value, `"`), os.Getenv))
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

// ownPath expands a file name in which ssh -G has replaced "~" by the home
// directory from the password database. It replaces that directory by e.home,
// unless the ssh configuration contains the whole path literally.
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

// splitWords splits a line at blanks, but not within double quotes.
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
func parseHop(word string) (Hop, error) {
	if rest, isURL := strings.CutPrefix(word, "ssh://"); isURL {
		word = strings.TrimSuffix(rest, "/")
	}
	var h Hop
	if at := strings.LastIndexByte(word, '@'); at >= 0 {
		unescaped, err := url.PathUnescape(word[:at])
		if err != nil {
			return Hop{}, err
		}
		h.User, word = unescaped, word[at+1:]
	}
	h.Host = strings.Trim(word, "[]") // an IPv6 address may be in brackets
	if host, port, err := net.SplitHostPort(word); err == nil {
		if h.Port, err = parsePort(port); err != nil {
			return Hop{}, err
		}
		h.Host = host
	}
	if h.Host == "" {
		return Hop{}, errors.New("host is empty")
	}
	return h, errors.Join(CheckName("host", h.Host), CheckName("user", h.User))
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("port %q is not between 1 and 65535", text)
	}
	return port, nil
}
