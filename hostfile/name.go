package hostfile

import (
	"net/netip"
	"strconv"
	"strings"
)

const (
	defaultPort = 22
	maxPort     = 65535
	maxName     = 253 // bytes of a domain name
	maxUser     = 64  // bytes of a login name
)

// checkUser returns an error unless user is a plain login name. This keeps
// options and shell syntax out of the commands that contain the name.
func checkUser(user string) error {
	const expected = "expected letters, digits and . _ - + before the @, not beginning with -"
	switch {
	case user == "":
		return wrong("no user before the @, %s", expected)
	case len(user) > maxUser, user[0] == '-', !plain(user, "._-+"):
		return hinted("for any other login name, give the host an alias with User in the ssh config",
			"bad user %s, %s", quoted(user), expected)
	}
	return nil
}

// checkName returns an error unless name is a host name, an alias of the ssh
// config in plain letters, or an IPv4 address.
func checkName(name string) error {
	const expected = "expected letters, digits and . _ -, not beginning with -"
	switch {
	case name == "":
		return wrong("no host name, expected one at the start of the line")
	case len(name) > maxName, name[0] == '-', !plain(name, "._-"):
		return wrong("bad host name %s, %s", quoted(name), expected)
	case strings.Contains("."+name+".", ".."):
		return wrong("bad host name %s, expected something before, between and after its dots", quoted(name))
	}
	if strings.Contains(name, ".") && strings.Trim(name, "0123456789.") == "" {
		if _, err := netip.ParseAddr(name); err != nil {
			return wrong("%s is not an IPv4 address, expected four numbers from 0 to 255", quoted(name))
		}
	}
	return nil
}

// plainZone reports whether the zone of an IPv6 address is empty or could be
// the name of a network interface.
func plainZone(zone string) bool { return plain(zone, "._-") }

// plain reports whether text holds only letters and digits of ASCII and signs.
func plain(text, signs string) bool {
	for _, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		digit := '0' <= r && r <= '9'
		if !letter && !digit && !strings.ContainsRune(signs, r) {
			return false
		}
	}
	return true
}

// number parses text that consists of decimal digits only. A number that
// overflows becomes the largest int.
func number(text string) (int, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.Atoi(text) // only the range can fail, and n is then the largest int
	return n, true
}
