// Package docs is the documentation. Of it programs read one page.
package docs

import _ "embed"

//go:embed openapi.yaml
var openAPI string

// OpenAPI is openapi.yaml, which describes what a worker answers by HTTP.
func OpenAPI() []byte { return []byte(openAPI) }
