package ssh

// For tests from outside the package.
var Validate = (*Config).validate
