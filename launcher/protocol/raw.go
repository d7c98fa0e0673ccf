package protocol

import "encoding/base64"

// Raw is a string of any bytes. JSON strings hold text only and would change
// the rest, so it travels in base64.
type Raw string

// MarshalText encodes r.
func (r Raw) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(r)), nil
}

// UnmarshalText decodes what MarshalText wrote.
func (r *Raw) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	*r = Raw(b)
	return err
}
