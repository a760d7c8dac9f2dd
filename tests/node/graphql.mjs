// A GraphQL API of 25 issues, by graphql-yoga. Prints its port.
import { createServer } from "node:http";
import { createSchema, createYoga } from "graphql-yoga";
import { GraphQLError } from "graphql";

const issues = Array.from({ length: 25 }, (_, i) => ({
  number: i + 1,
  title: `issue ${i + 1}`,
  author: { login: i % 2 ? "ada" : "bob" },
}));

const typeDefs = `
  type Author { login: String! }
  type Issue { number: Int!, title: String, secret: String, author: Author! }
  type PageInfo { endCursor: String, hasNextPage: Boolean! }
  type Edge { cursor: String!, node: Issue! }
  type Issues { nodes: [Issue!]!, edges: [Edge!]!, pageInfo: PageInfo!, totalCount: Int! }
  input Filter { since: Int, login: String }
  type Repository { issues(first: Int!, after: String, filter: Filter): Issues! }
  type Query { repository(owner: String!): Repository, limited: [Issue!] }
  type Mutation { close(number: Int!): Issue }
`;

// Every other call is refused, as by a rate limit.
let limited = 0;

const resolvers = {
  Query: {
    repository: (_, { owner }) => {
      if (owner !== "feedline") throw new GraphQLError("no such owner", { extensions: { code: "NOT_FOUND" } });
      return {};
    },
    limited: () => {
      limited += 1;
      if (limited % 2) throw new GraphQLError("slow down", { extensions: { code: "RATE_LIMITED" } });
      return issues.slice(0, 2);
    },
  },
  Repository: {
    issues: (_, { first, after, filter }) => {
      const wanted = issues
        .filter((issue) => !filter?.since || issue.number >= filter.since)
        .filter((issue) => !filter?.login || issue.author.login === filter.login);
      const begin = after ? Number(Buffer.from(after, "base64").toString()) : 0;
      const nodes = wanted.slice(begin, begin + first);
      const end = begin + nodes.length;
      const cursor = (at) => Buffer.from(String(at)).toString("base64");
      return {
        nodes,
        edges: nodes.map((node, i) => ({ cursor: cursor(begin + i + 1), node })),
        pageInfo: { endCursor: nodes.length ? cursor(end) : null, hasNextPage: end < wanted.length },
        totalCount: wanted.length,
      };
    },
  },
  Issue: {
    secret: (issue) => {
      if (issue.number === 13) throw new GraphQLError("no right to see this");
      return `s${issue.number}`;
    },
  },
};

const yoga = createYoga({ schema: createSchema({ typeDefs, resolvers }), logging: false, graphiql: false });
const server = createServer(yoga);
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
