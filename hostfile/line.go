package hostfile

import (
	"net/netip"
	"regexp"
	"strings"
)

// spaced matches the signs that may have space around them.
var spaced = regexp.MustCompile(`[ \t]*([=,*])[ \t]*`)

// parseHost reads the content of a line, which is not empty.
func parseHost(text string) (Host, error) {
	var host Host
	rest, err := host.readAddress(text)
	if err != nil {
		return Host{}, err
	}
	rest = strings.TrimLeft(rest, " \t")
	after, colon := strings.CutPrefix(rest, ":")
	if colon {
		if rest, err = host.readPort(after); err != nil {
			return Host{}, err
		}
	}
	// "host:22" and "host: 22" differ: only what touches the colon looks
	// like the usual port.
	glued := rest == strings.TrimLeft(rest, " \t")
	words := strings.Fields(spaced.ReplaceAllString(rest, "$1"))
	named := 0
	for named < len(words) && !strings.Contains(words[named], "=") {
		named++
	}
	if named > 0 {
		if err := host.readDevices(words[:named], colon, glued); err != nil {
			return Host{}, err
		}
	}
	if err := host.readOptions(words[named:], named > 0); err != nil {
		return Host{}, err
	}
	return host, nil
}

// readAddress reads user and name from the start of text and returns the rest.
func (h *Host) readAddress(text string) (string, error) {
	first := text
	if end := strings.IndexAny(text, " \t"); end >= 0 {
		first = text[:end]
	}
	if sign := strings.LastIndexByte(first, '@'); sign >= 0 {
		h.User = text[:sign]
		if err := checkUser(h.User); err != nil {
			return "", err
		}
		text, first = text[sign+1:], first[sign+1:]
	}
	if strings.HasPrefix(text, "[") {
		return h.readBrackets(text)
	}
	if bareIPv6(first) {
		return "", hinted(`such as "[fd00::4]" or "[fd00::4]: 0,1"`,
			"IPv6 address without brackets in %s, expected it in brackets", quoted(first))
	}
	h.Name, _, _ = strings.Cut(first, ":")
	return text[len(h.Name):], checkName(h.Name)
}

// readBrackets reads an IPv6 address and returns the rest.
func (h *Host) readBrackets(text string) (string, error) {
	inside, rest, closed := strings.Cut(text[1:], "]")
	if !closed {
		return "", wrong("%s has no closing bracket, expected an IPv6 address in brackets", quoted(text))
	}
	addr, err := netip.ParseAddr(inside)
	if err != nil || !addr.Is6() || !plainZone(addr.Zone()) {
		return "", wrong("%s is not an IPv6 address, expected one in the brackets", quoted(inside))
	}
	if rest != "" && !strings.ContainsRune(": \t", rune(rest[0])) {
		return "", wrong("%s after the bracket, expected a colon or a space", quoted(rest))
	}
	h.Name = addr.String()
	return rest, nil
}

// bareIPv6 reports whether the first word of a line holds an IPv6 address that
// should stand in brackets, with or without ids after it.
func bareIPv6(word string) bool {
	addr, err := netip.ParseAddr(strings.TrimSuffix(word, ":"))
	if err == nil && addr.Is6() {
		return true
	}
	// "fd00::4:0,1" is no address as a whole, yet nobody names a host so.
	parts := strings.SplitN(word, ":", 4)
	if !strings.Contains(word, "::") && len(parts) < 4 {
		return false
	}
	for _, part := range parts[:min(len(parts), 3)] {
		if strings.Trim(part, "0123456789abcdefABCDEF") != "" {
			return false
		}
	}
	return len(parts) > 2
}

// readPort reads the port, if one stands before a second colon in what follows
// the first, and returns the rest.
func (h *Host) readPort(text string) (string, error) {
	before, rest, second := strings.Cut(text, ":")
	before = strings.Trim(before, " \t")
	// The colons of "gpu01: addr=fd00::4" are an address's own.
	if !second || strings.ContainsAny(before, "= \t") {
		return text, nil
	}
	if before == "" {
		return "", wrong("nothing between two colons, expected a port there")
	}
	port, ok := number(before)
	if !ok || port < 1 || port > maxPort {
		return "", hinted(`a line with both is written "host:2222: 0,1"`,
			"bad port %s, expected 1 to %d between the two colons", quoted(before), maxPort)
	}
	h.Port = port
	return rest, nil
}
