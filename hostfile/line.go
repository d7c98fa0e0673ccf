package hostfile

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// spaced matches one of the characters = , * together with the spaces and tabs
// around it.
var spaced = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[ \t]*([=,*])[ \t]*`) })

// parseHosts parses a line without its comment. The line may name several
// hosts by a list or by ranges such as gpu[01-04]. values holds the values of
// the line's variables, which cutVariables has cut out of the line.
func parseHosts(text string, values []string) (hosts []Host, err error) {
	lines, err := expand(text)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		host, err := parseHost(line, values)
		if err != nil {
			return nil, err
		}
		if host.DataAddr != "" && len(lines) > 1 {
			return nil, wrong("addr=%s is for one host, and the line names %d: expected a line for each", host.DataAddr, len(lines))
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// parseHost parses a line for a single host. text is not empty and contains no
// comment. values holds the values of the line's variables, which cutVariables
// has cut out of the line.
func parseHost(text string, values []string) (Host, error) {
	user, name, rest, err := cutAddress(text)
	if err != nil {
		return Host{}, err
	}
	host := Host{User: user, Name: name}
	rest = strings.TrimLeft(rest, " \t")
	after, colon := strings.CutPrefix(rest, ":")
	if colon {
		if host.Port, rest, err = cutPort(after); err != nil {
			return Host{}, err
		}
	}
	// "host:22" and "host: 22" differ: a 22 that touches the colon is probably
	// meant as the SSH port.
	glued := rest == strings.TrimLeft(rest, " \t")
	words := strings.Fields(spaced().ReplaceAllString(rest, "$1"))
	named := 0
	for named < len(words) && !strings.Contains(words[named], "=") {
		named++
	}
	if named > 0 {
		if host.Devices, err = host.devicesOf(words[:named], colon, glued); err != nil {
			return Host{}, err
		}
	}
	given, err := parseOptions(words[named:], values, named > 0)
	if err != nil {
		return Host{}, err
	}
	host.Devices, host.DataAddr = given.apply(host.Devices), given.addr
	host.Interface, host.Env = given.nic, given.env
	return host, nil
}

// cutAddress parses the user and host name at the beginning of text. rest is
// the text after them.
func cutAddress(text string) (user, name, rest string, err error) {
	first := text
	if end := strings.IndexAny(text, " \t"); end >= 0 {
		first = text[:end]
	}
	if sign := strings.LastIndexByte(first, '@'); sign >= 0 {
		user = text[:sign]
		if err := checkUser(user); err != nil {
			return "", "", "", err
		}
		text, first = text[sign+1:], first[sign+1:]
	}
	if strings.HasPrefix(text, "[") {
		name, rest, err = cutBrackets(text)
		return user, name, rest, err
	}
	if bareIPv6(first) {
		return "", "", "", hinted(`such as "[fd00::4]" or "[fd00::4]: 0,1"`,
			"IPv6 address without brackets in %s, expected it in brackets", quoted(first))
	}
	name, _, _ = strings.Cut(first, ":")
	return user, name, text[len(name):], checkName(name)
}

// cutBrackets parses an IPv6 address in brackets at the beginning of text.
// rest is the text after the brackets.
func cutBrackets(text string) (name, rest string, err error) {
	inside, rest, closed := strings.Cut(text[1:], "]")
	if !closed {
		return "", "", wrong("%s has no closing bracket, expected an IPv6 address in brackets", quoted(text))
	}
	addr, err := netip.ParseAddr(inside)
	if err != nil || !addr.Is6() || !plainZone().MatchString(addr.Zone()) {
		return "", "", wrong("%s is not an IPv6 address, expected one in the brackets", quoted(inside))
	}
	if rest != "" && !strings.ContainsRune(": \t", rune(rest[0])) {
		return "", "", wrong("%s after the bracket, expected a colon or a space", quoted(rest))
	}
	return addr.String(), rest, nil
}

// hexGroups matches a word that begins with three groups of hexadecimal
// digits, as an IPv6 address does. The groups may be empty.
var hexGroups = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[[:xdigit:]]*:[[:xdigit:]]*:[[:xdigit:]]*(:|$)`) })

// bareIPv6 reports whether word, the first word of a line, is an IPv6 address
// without the required brackets. GPU ids may follow the address.
func bareIPv6(word string) bool {
	addr, err := netip.ParseAddr(strings.TrimSuffix(word, ":"))
	// ParseAddr rejects "fd00::4:0,1", an address with an id and without
	// brackets. Two adjacent colons, or more than two colons, show that the
	// word is not a host name either.
	return err == nil && addr.Is6() ||
		hexGroups().MatchString(word) && (strings.Contains(word, "::") || strings.Count(word, ":") > 2)
}

// cutPort parses the port at the beginning of text, the part of a line after
// the first colon. Only a number followed by a second colon is a port. Without
// a port, cutPort returns 0 and the whole text.
func cutPort(text string) (port int, rest string, err error) {
	before, rest, second := strings.Cut(text, ":")
	before = strings.Trim(before, " \t")
	// In "gpu01: addr=fd00::4" the second colon is part of the address.
	if !second || strings.ContainsAny(before, "= \t") {
		return 0, text, nil
	}
	if before == "" {
		return 0, "", wrong("nothing between two colons, expected a port there")
	}
	port, ok := number(before)
	if !ok || port < 1 || port > maxPort {
		return 0, "", hinted(`a line with both is written "host:2222: 0,1"`,
			"bad port %s, expected 1 to %d between the two colons", quoted(before), maxPort)
	}
	return port, rest, nil
}

const (
	defaultPort = 22
	maxPort     = 65535
)

// maxName is the longest host name in bytes, the limit of the domain name
// system.
const maxName = 253

// Patterns for login names, host names, and zones of IPv6 addresses (names of
// network interfaces). A host name may contain slashes, such as
// "namespace/pod", for the commands of --via.
var (
	plainUser = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._+][A-Za-z0-9._+-]{0,63}$`) })
	plainName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*(/[A-Za-z0-9._][A-Za-z0-9._-]*)*$`)
	})
	plainZone = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]*$`) })
)

// checkUser returns an error unless user is a plain login name. ssh commands
// contain the name, so it must not be able to add options or shell syntax to a
// command.
func checkUser(user string) error {
	const expected = "expected letters, digits and . _ - + before the @, not beginning with -"
	switch {
	case user == "":
		return wrong("no user before the @, %s", expected)
	case !plainUser().MatchString(user):
		return hinted("for any other login name, give the host an alias with User in the ssh config",
			"bad user %s, %s", quoted(user), expected)
	}
	return nil
}

// checkName returns an error unless name is valid: a host name, an alias from
// the ssh config in plain letters, an IPv4 address, or several of these joined
// by slashes.
func checkName(name string) error {
	const expected = "expected letters, digits and . _ -, not beginning with -"
	switch {
	case name == "":
		return wrong("no host name, expected one at the start of the line")
	case len(name) > maxName || !plainName().MatchString(name):
		return wrong("bad host name %s, %s", quoted(name), expected)
	case slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.Contains("."+part+".", "..")
	}):
		return wrong("bad host name %s, expected something before, between and after its dots", quoted(name))
	}
	if strings.Contains(name, ".") && strings.Trim(name, "0123456789.") == "" {
		if _, err := netip.ParseAddr(name); err != nil {
			return wrong("%s is not an IPv4 address, expected four numbers from 0 to 255", quoted(name))
		}
	}
	return nil
}

// number parses text that consists only of decimal digits. If the number
// overflows, it returns the largest int.
func number(text string) (int, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.Atoi(text) // on overflow, n is the largest int
	return n, true
}
