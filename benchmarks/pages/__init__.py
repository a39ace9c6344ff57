"""From runs and records to what people see: pages and figures of docs/, and the network that ships with capspoe."""
